// What refers to an image in a registry: by the API for it, and by the tag that stands in for the API where there is
// none. Both are read, since a registry may have learned the API after something was pushed.
//
// A listing is only where to look: what a referrer is, its own manifest says, and the program that asked reads that.

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { bytesOf, INDEX, parsed } from './registry.mjs'
import { putBytes, putFile } from './tar.mjs'
import { Failed, persist, refuse } from './web.mjs'

const MOST_LISTED = 1024
const MOST_PAGES = 64
const MOST_IN_AN_INDEX = 4096
const MOST_BYTES = 512 * 1024 * 1024 // of all evidence of one image
const NO_SUCH_API = [400, 404, 405, 406, 501]
const UPDATES = 8 // times that others may be faster than we
const SETTLE = 1000 // milliseconds after which somebody who read the index before us has written it
const DIGEST = /^sha256:[0-9a-f]{64}$/

const tagFor = (subject) => subject.replace(':', '-')

export const fileName = (folder, digest) => `${folder}/${digest.replace(':', '-')}`

function note(listed, document) {
  if (!Array.isArray(document.manifests)) throw new Failed('EBADMANIFEST')
  for (const entry of document.manifests) {
    if (typeof entry?.digest !== 'string' || !DIGEST.test(entry.digest)) throw new Failed('EBADMANIFEST')
    listed.set(entry.digest, Number.isSafeInteger(entry.size) ? entry.size : 0)
    if (listed.size > MOST_LISTED) throw new Failed('ETOOMANY')
  }
}

// The next page, which is of the same listing of the same registry; null: there is none.
function nextPage(link, here) {
  const found = /<([^<>]*)>\s*;[^,]*\brel="?next"?/i.exec(link ?? '')
  if (!found) return null
  const next = URL.parse(found[1], here)
  if (!next || next.origin !== here.origin || next.pathname !== here.pathname) throw new Failed('ELINK')
  return next
}

// All pages of one question. Null: no such API; else whether the registry left out what we did not ask for.
async function pages(registry, subject, type, listed) {
  let url = new URL(`${registry.base.href}/referrers/${subject}?artifactType=${encodeURIComponent(type)}`)
  const seen = new Set()
  let filtered = false
  while (url) {
    if (seen.has(url.href)) throw new Failed('ELINK')
    if (seen.size === MOST_PAGES) throw new Failed('ETOOMANY')
    const first = !seen.size
    seen.add(url.href)
    const { headers, document } = await persist(async () => {
      const response = await registry.ask(url, { accept: INDEX })
      if (first && NO_SUCH_API.includes(response.statusCode)) {
        response.destroy()
        return { document: null }
      }
      if (response.statusCode !== 200) throw refuse(response)
      return { headers: response.headers, document: parsed(await registry.web.document(response)) }
    })
    if (document === null) return null
    note(listed, document)
    filtered ||= /\bartifactType\b/i.test(headers['oci-filters-applied'] ?? '')
    url = nextPage(headers.link, url)
  }
  return filtered
}

async function byApi(registry, subject, types, listed) {
  for (const type of types) {
    // Null: there is no API. False: everything was listed, so the other types too.
    if (!(await pages(registry, subject, type, listed))) return
  }
}

// {document, etag}, or null when there is no such tag.
async function standIn(registry, subject) {
  const response = await registry.ask(`/manifests/${tagFor(subject)}`, { accept: INDEX })
  if (response.statusCode === 404) {
    response.destroy()
    return null
  }
  if (response.statusCode !== 200) throw refuse(response)
  return { etag: response.headers.etag ?? '', document: parsed(await registry.web.document(response)) }
}

async function listReferrers(registry, subject, types) {
  const listed = new Map()
  await byApi(registry, subject, types, listed)
  const found = await persist(() => standIn(registry, subject))
  if (found) note(listed, found.document)
  return listed
}

// A manifest as far as it is one; the program that asked says what is wrong with it.
function glance(bytes) {
  try {
    return parsed(bytes)
  } catch {
    return {}
  }
}

// Who can attach something must not be able to break a pull: what is not there, or has another size than its
// descriptor says, is left out, and the program that asked is told.
async function unlessOdd(act, odd) {
  try {
    await act()
  } catch (error) {
    if (!(error instanceof Failed) || !['E404', 'EBADSIZE'].includes(error.code)) throw error
    odd()
  }
}

// Every listed manifest that is no larger than ours are; of those that are evidence of ``subject``, the blobs too.
export async function sendEvidence(registry, subject, asked, work, say) {
  const listed = await listReferrers(registry, subject, asked.types)
  const sent = new Set()
  const left = []
  let bytes = 0
  const blob = async (descriptor) => {
    if (sent.has(descriptor.digest)) return
    const path = join(work, 'evidence')
    await registry.save(descriptor, path)
    await putFile(fileName('blobs', descriptor.digest), { path, size: descriptor.size })
    await rm(path)
    sent.add(descriptor.digest)
  }
  let done = 0
  for (const [digest, size] of listed) {
    say((done += 1), listed.size)
    await unlessOdd(
      async () => {
        if (size > asked.most_manifest) throw new Failed('EBADSIZE')
        const raw = await registry.manifest(digest, asked.most_manifest)
        await putBytes(fileName('manifests', digest), raw)
        const one = glance(raw)
        const most = asked.types.includes(one.artifactType) ? asked.most_blob[one.artifactType] : 0
        const parts = [one.config, ...(Array.isArray(one.layers) ? one.layers : [])]
        const fit = (part) => DIGEST.test(part?.digest) && Number.isSafeInteger(part.size) && part.size >= 0 && part.size <= most
        if (!most || one.subject?.digest !== subject || parts.length !== 2 || !parts.every(fit)) return
        bytes += parts[0].size + parts[1].size
        if (bytes > MOST_BYTES) throw new Failed('ETOOMANY')
        for (const part of parts) await blob(part)
      },
      () => left.push(digest),
    )
  }
  return left
}

// Adds entries to the index behind the tag. Nobody's entry is lost: the registry is asked to refuse a write over what
// we did not read, and since most do not know how, ours is read again once others who read before us have written.
export async function addToStandIn(registry, subject, entries) {
  const headers = (found) => ({
    'content-type': INDEX,
    ...(found ? (found.etag ? { 'if-match': found.etag } : {}) : { 'if-none-match': '*' }),
  })
  for (let update = 0; update < UPDATES; update += 1) {
    const found = await persist(() => standIn(registry, subject))
    const index = found?.document ?? { schemaVersion: 2, mediaType: INDEX, manifests: [] }
    if (!Array.isArray(index.manifests)) throw new Failed('EBADMANIFEST')
    const there = new Set(index.manifests.map((entry) => entry?.digest))
    const lacking = entries.filter((entry) => !there.has(entry.digest))
    if (!lacking.length) return
    index.manifests = [...index.manifests, ...lacking]
    if (index.manifests.length > MOST_IN_AN_INDEX) throw new Failed('ETOOMANY')
    const body = bytesOf(Buffer.from(JSON.stringify(index)))
    const response = await registry.ask(`/manifests/${tagFor(subject)}`, headers(found), { method: 'PUT', body })
    if (![200, 201, 412].includes(response.statusCode)) throw refuse(response)
    response.destroy()
    await sleep(SETTLE + Math.random() * SETTLE)
  }
  throw new Failed('ECONFLICT')
}
