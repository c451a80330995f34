// Pulls one image from a registry (OCI distribution): writes its blobs into the tar, then the evidence about it if it is
// asked for, result.json last. Or only looks up what some references name there (look_up), and writes those manifests.
//
// This file decides nothing and checks nothing: the program that asked re-hashes every blob and follows the same
// manifests in the same order.

import { createHash } from 'node:crypto'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'

import { fileName, sendEvidence } from './referrers.mjs'
import { parsed, Registry } from './registry.mjs'
import { putBytes, putFile } from './tar.mjs'
import { Failed } from './web.mjs'

async function manifest(registry, reference) {
  const bytes = await registry.manifest(reference)
  // What a tag names has no digest yet.
  const digest = reference.includes(':') ? reference : `sha256:${createHash('sha256').update(bytes).digest('hex')}`
  await putBytes(fileName('blobs', digest), bytes)
  return { ...parsed(bytes), digest }
}

async function blob(registry, work, descriptor) {
  const path = join(work, 'blob')
  await registry.save(descriptor, path)
  await putFile(fileName('blobs', descriptor.digest), { path, size: descriptor.size })
  await rm(path)
}

// An index: its manifests for these platforms. A manifest: itself.
async function manifestsOf(registry, asked) {
  const top = await manifest(registry, asked.digest ?? asked.tag)
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
      await putBytes(`manifests/${number}.json`, await registry.manifest(reference))
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
  const images = await manifestsOf(registry, asked)
  for (const one of images) {
    for (const descriptor of [one.config, ...(one.layers ?? [])]) blobs.set(descriptor?.digest, descriptor)
  }
  for (const digest of asked.have ?? []) blobs.delete(digest)
  const say = (name) => (done, total) =>
    process.stderr.write(JSON.stringify({ step: 'pull', name, done, total }) + '\n')
  let done = 0
  for (const descriptor of blobs.values()) {
    await blob(registry, work, descriptor)
    say(asked.repository)((done += 1), blobs.size)
  }
  return { images, say }
}

export async function pull(asked, { web, login, work }, result) {
  const registry = new Registry(asked, web, login)
  if (asked.look_up) result.found = await lookUp(asked, registry)
  else {
    const { images, say } = await pullImage(asked, registry, work)
    if (!asked.evidence || images.length !== 1) return
    result.left = await sendEvidence(registry, images[0].digest, asked.evidence, work, say('evidence'))
  }
}
