// Puts an image and what refers to it into a registry: blobs first, then manifests, then the names.
//
// A job without blobs to bring asks which ones the registry lacks; if none, it goes on to the manifests. One with
// blobs reads them from the stream behind the job, in the order in which the job lists them. Everything can be done
// again: what is there stays, and no name points to anything that is not whole.

import { createReadStream, createWriteStream } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { finished } from 'node:stream/promises'
import { fileURLToPath } from 'node:url'

import { addToStandIn } from './referrers.mjs'
import { bytesOf, Registry } from './registry.mjs'
import { putBytes } from './tar.mjs'
import { Failed, persist } from './web.mjs'

const JOB = dirname(fileURLToPath(import.meta.url))
const EMPTY = bytesOf(Buffer.alloc(0))

function progress(name, done, total, bytes = 0) {
  process.stderr.write(JSON.stringify({ step: 'push', name, done, total, bytes }) + '\n')
}

const end = (response) => {
  response.resume()
  return response
}

// The registry has it, or takes it over from another repository of its own.
async function isThere(registry, blob) {
  const found = await persist(() => registry.must([200, 404], `/blobs/${blob.digest}`, {}, { method: 'HEAD' }))
  end(found)
  if (found.statusCode === 200) return true
  if (!blob.from) return false
  const query = `?mount=${encodeURIComponent(blob.digest)}&from=${encodeURIComponent(blob.from)}`
  const mounted = await registry.ask(`/blobs/uploads/${query}`, {}, { method: 'POST', body: EMPTY })
  end(mounted)
  return mounted.statusCode === 201 // any other answer: it is uploaded like the others
}

// Where the registry wants the bytes: never plain where it is reached by TLS.
function placeOf(registry, response, digest) {
  const place = URL.parse(response.headers.location ?? '', registry.base)
  const plain = registry.base.protocol === 'https:' && place?.protocol !== 'https:'
  if (!place || plain) throw new Failed('EREDIRECT')
  place.search += `${place.search ? '&' : '?'}digest=${encodeURIComponent(digest)}`
  return place
}

async function upload(registry, blob, path) {
  const begun = end(await registry.must([202], '/blobs/uploads/', {}, { method: 'POST', body: EMPTY }))
  const place = placeOf(registry, begun, blob.digest)
  const body = { size: blob.size, open: () => createReadStream(path) }
  const headers = { 'content-type': 'application/octet-stream' }
  const done = end(await registry.must([201, 204], place, headers, { method: 'PUT', body }))
  said(done, blob.digest)
}

// What the registry says that it stored is what we sent.
function said(response, digest) {
  if ((response.headers['docker-content-digest'] ?? digest) !== digest) throw new Failed('EBADDIGEST')
}

// The stream behind the job, cut into files.
class Feed {
  constructor() {
    this.chunks = createReadStream(join(JOB, 'stream'))[Symbol.asyncIterator]()
    this.rest = Buffer.alloc(0)
  }

  async into(path, size) {
    const file = createWriteStream(path)
    for (let left = size; left > 0; ) {
      if (!this.rest.length) {
        const { value, done } = await this.chunks.next()
        if (done) throw new Failed('EFEED')
        this.rest = value
      }
      const part = this.rest.subarray(0, left)
      this.rest = this.rest.subarray(part.length)
      left -= part.length
      if (!file.write(part)) await new Promise((resolve, reject) => file.once('drain', resolve).once('error', reject))
    }
    await finished(file.end())
  }
}

async function bring(registry, blobs, work) {
  const feed = new Feed()
  let bytes = 0
  for (const [number, blob] of blobs.entries()) {
    const path = join(work, 'blob')
    await feed.into(path, blob.size)
    if (!(await isThere(registry, { digest: blob.digest }))) await persist(() => upload(registry, blob, path))
    await rm(path)
    progress('blobs', number + 1, blobs.length, (bytes += blob.size))
  }
}

async function putManifest(registry, one, reference) {
  const raw = await readFile(join(JOB, one.file))
  const headers = { 'content-type': one.media_type }
  const put = () => registry.must([200, 201], `/manifests/${reference}`, headers, { method: 'PUT', body: bytesOf(raw) })
  const response = end(await persist(put))
  said(response, one.digest)
  return response
}

// Evidence after the image. Without the API, the registry does not say that it understood whom it is about.
async function attach(registry, asked) {
  const lonely = []
  for (const [number, one] of asked.referrers.entries()) {
    progress('evidence', number + 1, asked.referrers.length)
    const response = await putManifest(registry, one, one.digest)
    if (response.headers['oci-subject'] !== asked.image.digest) lonely.push(one.entry)
  }
  if (lonely.length) await addToStandIn(registry, asked.image.digest, lonely)
}

export async function push(asked, { web, login, work }, result) {
  const registry = new Registry(asked, web, login)
  if (asked.brought.length) await bring(registry, asked.brought, work)
  else {
    result.missing = []
    for (const [number, blob] of asked.blobs.entries()) {
      if (!(await isThere(registry, blob))) result.missing.push(blob.digest)
      progress('what is there', number + 1, asked.blobs.length)
    }
    if (result.missing.length) return
  }
  const manifests = [...asked.others, asked.image]
  for (const one of manifests) await putManifest(registry, one, one.digest)
  await attach(registry, asked)
  for (const one of manifests) for (const tag of one.tags) await putManifest(registry, one, tag)
  await putBytes('manifest', await registry.manifest(asked.image.digest))
}
