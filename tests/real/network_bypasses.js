// Every way around the list that an agent may think of; what became of each is a line.
(async () => {
  say('a raw address', await reach('@ADDRESS@', 443))
  say('a raw IPv6 address', await reach('@SIX@', 443))
  say('metadata', await reach('169.254.169.254', 80))
  say('the name', await reach('@MODEL@', 443))
  say('a public resolver', await reach('8.8.8.8', 53))
  say('a datagram', await ended((done) => {
    const out = dgram.createSocket('udp4')
    out.send('x', 53, '8.8.8.8', (error) => { done(error?.code ?? 'sent'); out.close() })
  }))
  const fetched = (env) => require('node:child_process').spawnSync(process.execPath, ['-e',
    "fetch('https://@MODEL@/x').then((one) => console.log(one.status), (error) => console.log(error.cause.code))"],
    { env }).stdout.toString().trim()
  const bare = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/proxy/i.test(name)))
  say('without the variables', fetched({ ...bare, NODE_USE_ENV_PROXY: '1' }))
  say('with the variables', fetched({ ...process.env, NODE_USE_ENV_PROXY: '1' }))
  say('listed', await connect('@MODEL@:443'))
  say('listed, in capitals', await connect('@UPPER@:443'))
  say('listed, past the relay', await connect('@MODEL@:443', { path: place }))
  for (const target of ['@MODEL@:80', '@MODEL@:8443', '@ADDRESS@:443', '[@SIX@]:443', '169.254.169.254:80',
    '127.0.0.1:443', 'localhost:443', 'www.@MODEL@:443', '@DOMAIN@:443', 'c2VjcmV0.tunnel.@DOMAIN@:443'])
    say(`other: ${target}`, await connect(target))
  say('other, past the relay', await connect('@ADDRESS@:80', { path: place }))
  for (const target of ['@MODEL@.:443', 'x@@MODEL@:443', 'https://@MODEL@:443/', '@MODEL@', '2130706433:443',
    '127.1:443', '[::ffff:127.0.0.1]:443', '@MODEL@:443\r\nX: y', '@MODEL@:443 @ADDRESS@:80', 'mödel.@DOMAIN@:443'])
    say(`form: ${target}`, await connect(target))
  const good = 'CONNECT @MODEL@:443 HTTP/1.1\r\n'
  say('form: pipelined', await ask(`${good}\r\nCONNECT @ADDRESS@:80 HTTP/1.1\r\n\r\n`))
  say('form: another Host', await ask(`${good}Host: @ADDRESS@:80\r\n\r\n`))
  say('form: a body', await ask(`${good}Content-Length: 5\r\n\r\nhello`))
  say('form: bare LF', await ask(`CONNECT @MODEL@:443 HTTP/1.1\nHost: @ADDRESS@\n\n\r\n\r\n`))
  say('form: huge', await ask(good + 'X: y\r\n'.repeat(100000)))
  say('method: GET', await ask('GET http://@MODEL@/ HTTP/1.1\r\nHost: @MODEL@\r\n\r\n'))
  say('slow', await ask('CONNECT @MODEL@'))
  say('remove the socket', attempt(() => fs.unlinkSync(place)))
  say('another socket', attempt(() => fs.writeFileSync(place + '2', '')))
  say('rename the socket', attempt(() => fs.renameSync(place, place + '2')))
  say('open the directory', attempt(() => fs.chmodSync('/opt/builder/network', 0o777)))
  say('change the relay', attempt(() => fs.writeFileSync('/opt/builder/relay', '')))
  const flood = Array.from({ length: 300 }, () => net.connect({ path: place }).on('error', () => {}))
  await new Promise((done) => setTimeout(done, 500))
  for (const stream of flood) stream.destroy()
  let after = '' // the controller lets go of three hundred, which takes a busy machine a moment
  for (let tries = 0; tries < 100 && !after.includes('200'); tries += 1) {
    await new Promise((done) => setTimeout(done, 200))
    after = await connect('@MODEL@:443')
  }
  say('after a flood', after)
  for (const one of fs.readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name))) attempt(() => {
    if (fs.readFileSync(`/proc/${one}/cmdline`, 'utf8').split('\0')[1] === '/opt/builder/relay') process.kill(+one, 'SIGKILL')
  })
  let again = ''
  for (let tries = 0; tries < 100 && !again.includes('200'); tries += 1) {
    await new Promise((done) => setTimeout(done, 200))
    again = await connect('@MODEL@:443')
  }
  say('after the relay was killed', again)
  say('interfaces', Object.keys(require('node:os').networkInterfaces()).join())
})()
