// Pulls one image by digest from a registry (OCI distribution): writes its blobs into the tar, result.json last.
// Or only looks up what some references name there (look_up), and writes those manifests.
//
// This file decides nothing and checks nothing: the program that asked re-hashes every blob and follows the same
// manifests in the same order. No credential is sent; a registry that hands out anonymous tokens is asked for one.

import { createWriteStream } from 'node:fs'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { isIP } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'

import { end, putBytes, putFile } from './tar.mjs'

const JOB = dirname(fileURLToPath(import.meta.url))
const MAX_MANIFEST = 4 * 1024 * 1024
const ATTEMPTS = 3
const MANIFEST_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.docker.distribution.manifest.v2+json',
]

class Failed extends Error {
  constructor(code, retryAfter = '') {
    super(code)
    this.code = code
    this.retryAfter = retryAfter
  }
}

// Everything is checked by digest, so an address without a name, which can have no certificate, may be plain.
function origin(registry) {
  const host = registry.replace(/:\d+$/, '')
  return `${isIP(host) || host === 'localhost' ? 'http' : 'https'}://${registry}`
}

// "Bearer realm=…,service=…": where to ask for an anonymous token.
async function tokenFor(challenge) {
  const parts = Object.fromEntries([...challenge.matchAll(/(\w+)="([^"]*)"/g)].map((found) => found.slice(1)))
  if (!/^bearer /i.test(challenge) || !parts.realm) throw new Failed('E401')
  const query = new URLSearchParams()
  for (const name of ['service', 'scope']) if (parts[name]) query.set(name, parts[name])
  const response = await fetch(`${parts.realm}?${query}`)
  if (!response.ok) throw new Failed(`E${response.status}`)
  const answer = await response.json()
  return answer.token ?? answer.access_token ?? ''
}

class Registry {
  constructor(pull) {
    this.base = `${origin(pull.registry)}/v2/${pull.repository}`
    this.token = ''
  }

  async once(path, accept) {
    const ask = () =>
      fetch(this.base + path, {
        headers: { accept, ...(this.token ? { authorization: `Bearer ${this.token}` } : {}) },
      })
    let response = await ask()
    if (response.status === 401 && !this.token) {
      this.token = await tokenFor(response.headers.get('www-authenticate') ?? '')
      response = await ask()
    }
    if (!response.ok) throw new Failed(`E${response.status}`, response.headers.get('retry-after') ?? '')
    return response
  }

  // Ask, and take the whole body; a broken connection and a failing server get another try.
  async get(path, accept, take) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await take(await this.once(path, accept))
      } catch (error) {
        const again = !(error instanceof Failed) || /^E5/.test(error.code)
        if (!again || attempt === ATTEMPTS) throw error
        await new Promise((resolve) => setTimeout(resolve, 1000 * attempt))
      }
    }
  }
}

const blobName = (digest) => `blobs/${digest.replace(':', '-')}`

async function manifestBytes(registry, reference) {
  const take = async (response) => Buffer.from(await response.arrayBuffer())
  const bytes = await registry.get(`/manifests/${reference}`, MANIFEST_TYPES.join(', '), take)
  if (bytes.length > MAX_MANIFEST) throw new Failed('EBADSIZE')
  return bytes
}

async function manifest(registry, digest) {
  const bytes = await manifestBytes(registry, digest)
  await putBytes(blobName(digest), bytes)
  try {
    return JSON.parse(bytes.toString())
  } catch {
    throw new Failed('EBADMANIFEST')
  }
}

async function blob(registry, work, descriptor) {
  const path = join(work, descriptor.digest.replace(':', '-'))
  const take = (response) => pipeline(Readable.fromWeb(response.body), createWriteStream(path))
  await registry.get(`/blobs/${descriptor.digest}`, '*/*', take)
  const { size } = await stat(path)
  if (size !== descriptor.size) throw new Failed('EBADSIZE')
  await putFile(blobName(descriptor.digest), { path, size })
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
async function lookUp(asked) {
  const registry = new Registry(asked)
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

async function pull(asked, work) {
  const registry = new Registry(asked)
  const blobs = new Map()
  for (const one of await manifestsOf(registry, asked)) {
    for (const descriptor of [one.config, ...(one.layers ?? [])]) blobs.set(descriptor.digest, descriptor)
  }
  let done = 0
  for (const descriptor of blobs.values()) {
    await blob(registry, work, descriptor)
    done += 1
    const event = { step: 'pull', name: asked.repository, done, total: blobs.size }
    process.stderr.write(JSON.stringify(event) + '\n')
  }
}

const job = JSON.parse(await readFile(join(JOB, 'job.json'), 'utf8'))
const work = await mkdtemp(join(tmpdir(), 'pull-'))
const result = { schema: 1, error: null, view: [] }
try {
  if (job.pull.look_up) result.found = await lookUp(job.pull)
  else await pull(job.pull, work)
} catch (error) {
  const code = error instanceof Failed ? error.code : (error.cause?.code ?? error.code ?? 'ECONNRESET')
  const after = /^\d{1,6}$/.test(error.retryAfter ?? '') ? error.retryAfter : ''
  result.error = { code: String(code).slice(0, 100), item: '', spec: '', retry_after: after }
} finally {
  await rm(work, { recursive: true, force: true })
}
await putBytes('result.json', Buffer.from(JSON.stringify(result)))
await end()
