// What every attempt from inside is made with: each ends in a word. Names in @…@ are filled in by the test.
const net = require('node:net'), dgram = require('node:dgram'), fs = require('node:fs')
const place = '/opt/builder/network/socket', relay = { host: '127.0.0.1', port: 3128 }
const ended = (start) => new Promise((done) => start(done))
const reach = (host, port) => ended((done) => {
  const stream = net.connect({ host, port, timeout: 5000 }, () => done('connected'))
  stream.on('timeout', () => done('timeout')).on('error', (error) => done(error.code))
})
const ask = (raw, to = relay) => ended((done) => {
  let said = ''
  const stream = net.connect({ ...to, timeout: 20000 }, () => stream.write(raw))
  stream.on('data', (part) => {
    said += part
    if (!said.includes('\r\n')) return
    done(said.split('\r\n')[0])
    stream.destroy()
  })
  stream.on('timeout', () => done('timeout')).on('error', (error) => done(error.code)).on('end', () => done(said))
})
const connect = (target, to) => ask(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`, to)
const attempt = (act) => { try { act(); return 'done' } catch (error) { return error.code } }
const say = (name, found) => console.log(JSON.stringify([name, found]));
