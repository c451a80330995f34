// Asks for one document at a time over HTTP, by Node's own client: every failure is an error with a code, which the
// one who waits gets. Nothing is decided here but how long silence may last.

import { open } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import { createSecureContext } from 'node:tls'

import { SILENCE } from './children.mjs'

const LEAST = 1024 // bytes that must have come between two looks: a trickle is a stall
const MAX_REDIRECTS = 5
const MAX_DOCUMENT = 4 * 1024 * 1024
const ATTEMPTS = 3
// Another try would end in the same way.
const FINAL = /^E4|^EREDIRECT$|CERT|SELF_SIGNED|UNABLE_TO_|^ERR_(TLS|SSL|INVALID)/
// A connection that was never made: through a proxy, it is the proxy that was not reached.
const NOT_REACHED = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT)$/

// A retry-after in seconds: it is a number of them, or a date. Empty when it is neither.
export function secondsOf(retryAfter, now = Date.now()) {
  const said = String(retryAfter ?? '').trim()
  const seconds = /^\d+$/.test(said) ? said : String(Math.max(0, Math.ceil((Date.parse(said) - now) / 1000)))
  return /^\d{1,6}$/.test(seconds) ? seconds : ''
}

// ``hop``: 'proxy' (it was not reached, or does not let us), 'beyond' (it cannot reach the registry), else ''.
export class Failed extends Error {
  constructor(code, { retryAfter = '', hop = '' } = {}) {
    super(code)
    this.code = code
    this.retryAfter = secondsOf(retryAfter)
    this.hop = hop
  }
}

export class Web {
  constructor({ proxy = null, authorities = null, silence = SILENCE } = {}) {
    this.silence = silence // until an answer begins, and of each look at how much of it came
    this.proxy = proxy
    const { http: plain, https: secure, no_proxy: bypass = [] } = proxy ?? {}
    const proxyEnv = { http_proxy: plain, https_proxy: secure, no_proxy: bypass.join(',') }
    const secureContext = authorities ? createSecureContext({ ca: authorities }) : undefined
    // A connection for each request: one that is kept may be closed by the other side just when it is used again.
    this.agents = { 'http:': new http.Agent({ proxyEnv }), 'https:': new https.Agent({ proxyEnv, secureContext }) }
  }

  // Does a request go through the proxy?
  proxied(url) {
    if (!this.proxy?.[url.protocol.slice(0, -1)]) return false
    const matches = (name) => {
      const bare = name.replace(/^\*?\./, '').replace(/:\d+$/, '')
      return name === '*' || url.hostname === bare || (bare !== name && url.hostname.endsWith(`.${bare}`))
    }
    return !(this.proxy.no_proxy ?? []).some(matches)
  }

  // An error of Node's, with the hop that it is about.
  located(url, error) {
    if (error instanceof Failed || !this.proxied(url)) return error
    if (error.code === 'ERR_PROXY_TUNNEL') {
      const status = error.statusCode ?? 502
      return new Failed(`E${status}`, { hop: status >= 500 ? 'beyond' : 'proxy' })
    }
    return NOT_REACHED.test(error.code) ? new Failed(error.code, { hop: 'proxy' }) : error
  }

  // The answer's head; its body must be taken by drain or destroyed. ``body``: what is sent, {size, open()}, where
  // open gives its bytes or a stream of them.
  open(url, headers, { method = 'GET', body = null } = {}) {
    return new Promise((resolve, reject) => {
      const client = { 'http:': http, 'https:': https }[url.protocol]
      if (!client) return reject(new Failed('EREDIRECT'))
      const length = body ? { 'content-length': body.size } : {}
      const options = {
        method,
        agent: this.agents[url.protocol],
        headers: { 'accept-encoding': 'identity', ...length, ...headers },
      }
      let source = null
      const request = client.request(url, options, (response) => {
        clearTimeout(timer)
        source?.destroy() // who answers early wants no more of it
        response.on('error', () => {}) // who drains it hears of it; a late one concerns nobody
        if (response.statusCode !== 407) return resolve(response)
        response.destroy()
        reject(new Failed('E407', { hop: 'proxy' }))
      })
      const late = () => {
        // Without a socket that is connected, there is no tunnel yet, or no proxy.
        const hop = this.proxied(url) && (!request.socket || request.socket.connecting) ? 'proxy' : ''
        const failed = new Failed('ETIMEDOUT', { hop })
        request.destroy(failed)
        reject(failed) // a request that waits for its tunnel tells nobody that it was ended
      }
      // While something is sent, what counts is that it moves.
      let sent = 0
      const look = () => {
        const now = body?.size ? (request.socket?.bytesWritten ?? 0) : 0
        if (now - sent < LEAST) return late()
        sent = now
        timer = setTimeout(look, this.silence)
      }
      let timer = setTimeout(look, this.silence)
      const broken = (error) => {
        clearTimeout(timer)
        source?.destroy()
        reject(this.located(url, error))
      }
      request.on('error', broken)
      const bytes = body?.open()
      if (!bytes?.pipe) return request.end(bytes)
      source = bytes
      source.on('error', (error) => request.destroy(error))
      source.pipe(request)
    })
  }

  // Follows redirects of what only reads: never from https to http, and no credential goes to another origin.
  // ``elsewhere`` of the answer says that another origin gave it: what it asks for is not the registry's word.
  async follow(address, headers, options = {}) {
    let url = new URL(address)
    const { origin } = url
    for (let hop = 0; hop <= MAX_REDIRECTS; hop += 1) {
      const { authorization, ...rest } = headers
      const response = await this.open(url, url.origin === origin && authorization ? headers : rest, options)
      if (![301, 302, 303, 307, 308].includes(response.statusCode) || options.body) {
        return Object.assign(response, { elsewhere: url.origin !== origin })
      }
      response.destroy()
      const next = URL.parse(response.headers.location ?? '', url)
      if (!next || (url.protocol === 'https:' && next.protocol !== 'https:')) break
      url = next
    }
    throw new Failed('EREDIRECT')
  }

  // The whole body in pieces, at most ``limit`` bytes, and never slower than a trickle. Returns its size.
  async drain(response, limit, take) {
    const came = { now: 0, before: 0 }
    const watch = setInterval(() => {
      if (came.now - came.before < LEAST) response.destroy(new Failed('ETIMEDOUT'))
      came.before = came.now
    }, this.silence)
    try {
      for await (const chunk of response) {
        came.now += chunk.length
        if (came.now > limit) throw new Failed('EBADSIZE')
        await take(chunk)
      }
    } finally {
      clearInterval(watch)
      response.destroy()
    }
    return came.now
  }

  // The same into a file.
  async save(response, limit, path) {
    const file = await open(path, 'w')
    try {
      return await this.drain(response, limit, (chunk) => file.writeFile(chunk))
    } finally {
      await file.close()
    }
  }

  async document(response, limit = MAX_DOCUMENT) {
    const chunks = []
    await this.drain(response, limit, (chunk) => chunks.push(chunk))
    return Buffer.concat(chunks)
  }
}

// A document that is no success, as an error.
export function refuse(response) {
  response.destroy()
  return new Failed(`E${response.statusCode}`, { retryAfter: response.headers['retry-after'] })
}

// What breaks on the way, and a server that fails, get another try.
export async function persist(act) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await act()
    } catch (error) {
      if (FINAL.test(String(error?.code)) || attempt === ATTEMPTS) throw error
      await new Promise((resolve) => setTimeout(resolve, 1000 * attempt))
    }
  }
}

// No client tells how long a registry that asked it to slow down wants it to wait: one request of ours does.
export async function waitAskedFor(web, address, headers) {
  const url = URL.parse(address)
  if (!url) return {}
  try {
    const response = await web.open(url, headers)
    response.destroy()
    return response.statusCode === 429 ? { retryAfter: secondsOf(response.headers['retry-after']) } : {}
  } catch {
    return {}
  }
}

// Which hop a client of another make failed at, asked by one request of ours to the same address.
export async function failedHop(web, address) {
  const url = URL.parse(address)
  if (!url || !web.proxied(url)) return {}
  try {
    const response = await web.open(url, {})
    response.destroy()
    return {}
  } catch (error) {
    return error.hop ? { hop: error.hop, code: error.code } : {}
  }
}
