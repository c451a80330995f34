// Pulls one image by digest from a registry (OCI distribution): writes its blobs into the tar, result.json last.
// Or only looks up what some references name there (look_up), and writes those manifests.
//
// This file decides nothing and checks nothing: the program that asked re-hashes every blob and follows the same
// manifests in the same order. A registry that hands out tokens is asked for one, with the operator's login for it
// if there is one.

import { rm } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join } from 'node:path'

import { putBytes, putFile } from './tar.mjs'
import { Failed, persist, refuse } from './web.mjs'

const MANIFEST_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
]

// Everything is checked by digest, so an address without a name, which can hardly have a certificate, may be plain.
// A login never goes over a plain connection.
function origin(registry, login) {
  const host = registry.replace(/:\d+$/, '')
  return `${!login && (isIP(host) || host === 'localhost') ? 'http' : 'https'}://${registry}`
}

const basic = (login) => `Basic ${Buffer.from(login).toString('base64')}`

// "Bearer realm=…,service=…": where to ask for a token. "Basic": the login itself.
async function authorizationFor(web, challenge, login) {
  if (/^basic\b/i.test(challenge) && login) return basic(login)
  const parts = Object.fromEntries([...challenge.matchAll(/(\w+)="([^"]*)"/g)].map((found) => found.slice(1)))
  const realm = URL.parse(parts.realm ?? '')
  if (!/^bearer /i.test(challenge) || !realm || (login && realm.protocol !== 'https:')) throw new Failed('E401')
  for (const name of ['service', 'scope']) if (parts[name]) realm.searchParams.set(name, parts[name])
  const response = await web.follow(realm, login ? { authorization: basic(login) } : {})
  if (response.statusCode !== 200) throw refuse(response)
  const answer = parsed(await web.document(response))
  return `Bearer ${answer.token ?? answer.access_token ?? ''}`
}

function parsed(bytes) {
  try {
    return JSON.parse(bytes.toString()) ?? {}
  } catch {
    throw new Failed('EBADMANIFEST')
  }
}

class Registry {
  constructor(pull, web, login) {
    this.base = `${origin(pull.registry, login)}/v2/${pull.repository}`
    this.web = web
    this.login = login
    this.authorization = ''
  }

  async once(path, accept) {
    const ask = () => {
      const authorization = this.authorization ? { authorization: this.authorization } : {}
      return this.web.follow(this.base + path, { accept, ...authorization })
    }
    let response = await ask()
    // A login goes where the registry itself says, not where the one says whom it redirects to.
    if (response.statusCode === 401 && !this.authorization && !response.elsewhere) {
      response.destroy()
      this.authorization = await authorizationFor(this.web, response.headers['www-authenticate'] ?? '', this.login)
      response = await ask()
    }
    if (response.statusCode !== 200) throw refuse(response)
    return response
  }
}

const blobName = (digest) => `blobs/${digest.replace(':', '-')}`

const manifestBytes = (registry, reference) =>
  persist(async () => {
    const response = await registry.once(`/manifests/${reference}`, MANIFEST_TYPES.join(', '))
    return registry.web.document(response)
  })

async function manifest(registry, digest) {
  const bytes = await manifestBytes(registry, digest)
  await putBytes(blobName(digest), bytes)
  return parsed(bytes)
}

async function download(registry, descriptor, path) {
  if (!Number.isSafeInteger(descriptor?.size) || typeof descriptor.digest !== 'string') throw new Failed('EBADMANIFEST')
  const response = await registry.once(`/blobs/${descriptor.digest}`, '*/*')
  const size = await registry.web.save(response, descriptor.size, path)
  if (size !== descriptor.size) throw new Failed('EBADSIZE')
}

async function blob(registry, work, descriptor) {
  const path = join(work, 'blob')
  await persist(() => download(registry, descriptor, path))
  await putFile(blobName(descriptor.digest), { path, size: descriptor.size })
  await rm(path)
}

// An index: its manifests for these platforms. A manifest: itself.
async function manifestsOf(registry, asked) {
  const top = await manifest(registry, asked.digest)
  if (!Array.isArray(top.manifests)) return [top]
  const found = []
  for (const entry of top.manifests) {
    const { os, architecture } = entry.platform ?? {}
    if (asked.platforms.includes(`${os}/${architecture}`)) found.push(await manifest(registry, entry.digest))
  }
  return found
}

// What tags and digests name now: for each the manifest's bytes, or the code that says that there is none.
async function lookUp(asked, registry) {
  const found = []
  for (const [number, reference] of asked.look_up.entries()) {
    try {
      await putBytes(`manifests/${number}.json`, await manifestBytes(registry, reference))
      found.push('')
    } catch (error) {
      if (!(error instanceof Failed) || !/^E4(04|10)$/.test(error.code)) throw error
      found.push(error.code)
    }
  }
  return found
}

async function pullImage(asked, registry, work) {
  const blobs = new Map()
  for (const one of await manifestsOf(registry, asked)) {
    for (const descriptor of [one.config, ...(one.layers ?? [])]) blobs.set(descriptor?.digest, descriptor)
  }
  let done = 0
  for (const descriptor of blobs.values()) {
    await blob(registry, work, descriptor)
    done += 1
    const event = { step: 'pull', name: asked.repository, done, total: blobs.size }
    process.stderr.write(JSON.stringify(event) + '\n')
  }
}

export async function pull(asked, { web, login, work }, result) {
  const registry = new Registry(asked, web, login)
  if (asked.look_up) result.found = await lookUp(asked, registry)
  else await pullImage(asked, registry, work)
}
