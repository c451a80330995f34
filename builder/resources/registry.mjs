// One repository of a registry (OCI distribution): where it is, whose login it gets, which answers are failures.
//
// Nothing is decided and nothing is checked here: the program that asked hashes every byte again. A registry that
// hands out tokens is asked for one, with the operator's login for it if there is one.

import { isIP } from 'node:net'

import { Failed, persist, refuse } from './web.mjs'

export const INDEX = 'application/vnd.oci.image.index.v1+json'
const MANIFEST_TYPES = [
  INDEX,
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ')

// Everything is checked by digest, so an address without a name, which can hardly have a certificate, may be plain.
// A login never goes over a plain connection.
function originOf(registry, login) {
  const host = registry.replace(/:\d+$/, '')
  return `${!login && (isIP(host) || host === 'localhost') ? 'http' : 'https'}://${registry}`
}

const IDENTITY = '<token>:' // as credential helpers write it: no user with a password, but a token to get tokens with
const basic = (login) => `Basic ${Buffer.from(login).toString('base64')}`

export function parsed(bytes) {
  try {
    return JSON.parse(bytes.toString()) ?? {}
  } catch {
    throw new Failed('EBADMANIFEST')
  }
}

export const bytesOf = (buffer) => ({ size: buffer.length, open: () => buffer })

export class Registry {
  constructor({ registry, repository }, web, login) {
    this.base = new URL(`${originOf(registry, login)}/v2/${repository}`)
    this.web = web
    this.login = login
    this.authorization = ''
  }

  // Any answer to one request. ``where``: below the repository, or an address that the registry gave: a login goes
  // to none but the registry's own.
  async ask(where, headers = {}, options = {}) {
    const url = where instanceof URL ? where : new URL(this.base.href + where)
    const own = url.origin === this.base.origin
    const attempt = () => {
      const authorization = own && this.authorization ? { authorization: this.authorization } : {}
      return this.web.follow(url, { ...headers, ...authorization }, options)
    }
    const response = await attempt()
    // A login goes where the registry itself says, not where the one says whom it redirects to.
    if (response.statusCode !== 401 || response.elsewhere || !own) return response
    response.destroy()
    this.authorization = await this.authorizationFor(response.headers['www-authenticate'] ?? '')
    return attempt()
  }

  // The answer, which has one of these codes.
  async must(codes, where, headers, options) {
    const response = await this.ask(where, headers, options)
    if (!codes.includes(response.statusCode)) throw refuse(response)
    return response
  }

  manifest(reference, limit) {
    return persist(async () => {
      const response = await this.must([200], `/manifests/${reference}`, { accept: MANIFEST_TYPES })
      return this.web.document(response, limit)
    })
  }

  // A blob into a file; it has the size that its descriptor says.
  save(descriptor, path) {
    return persist(async () => {
      if (!Number.isSafeInteger(descriptor?.size) || typeof descriptor.digest !== 'string') throw new Failed('EBADMANIFEST')
      const response = await this.must([200], `/blobs/${descriptor.digest}`, { accept: '*/*' })
      const size = await this.web.save(response, descriptor.size, path)
      if (size !== descriptor.size) throw new Failed('EBADSIZE')
    })
  }

  // "Bearer realm=…,service=…": where to ask for a token. "Basic": the login itself.
  async authorizationFor(challenge) {
    const { login } = this
    const identity = login.startsWith(IDENTITY)
    if (/^basic\b/i.test(challenge) && login && !identity) return basic(login)
    const parts = Object.fromEntries([...challenge.matchAll(/(\w+)="([^"]*)"/g)].map((found) => found.slice(1)))
    const realm = URL.parse(parts.realm ?? '')
    if (!/^bearer /i.test(challenge) || !realm || (login && realm.protocol !== 'https:')) throw new Failed('E401')
    const about = ['service', 'scope'].filter((name) => parts[name]).map((name) => [name, parts[name]])
    const response = identity ? await this.exchangeToken(realm, about) : await this.fetchToken(realm, about)
    if (response.statusCode !== 200) throw refuse(response)
    const answer = parsed(await this.web.document(response))
    return `Bearer ${answer.token ?? answer.access_token ?? ''}`
  }

  fetchToken(realm, about) {
    for (const [name, value] of about) realm.searchParams.set(name, value)
    return this.web.follow(realm, this.login ? { authorization: basic(this.login) } : {})
  }

  exchangeToken(realm, about) {
    const form = new URLSearchParams([
      ['grant_type', 'refresh_token'],
      ['client_id', 'agent-image-builder'],
      ['refresh_token', this.login.slice(IDENTITY.length)],
      ...about,
    ])
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    return this.web.follow(realm, headers, { method: 'POST', body: bytesOf(Buffer.from(form.toString())) })
  }
}
