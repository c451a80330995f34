// Asks the registry about versions of packages, with npm's own client and configuration: when each was published,
// which signatures the registry gives for it, and what its publisher states. A process of its own, like every one that
// speaks TLS.
//
// Standard input, JSON: [{name, versions, statements}]. No versions means: all. One line of JSON for each package, in
// order: {versions: [...]}, or npm's code. With ``statements``, what the registry has of its publisher's own comes
// along: the text of the registry's document, or npm's code. Full metadata is asked, which alone is sure to tell the
// time; npm asks for the same when it fetches, and finds it in its cache. This file decides nothing and passes on no
// message of npm's.

import { readFileSync, realpathSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

const PARALLEL = 12
const MAX_SIGNATURES = 20
const MAX_STATEMENTS = 1024 * 1024 // bytes of the document about one version

const npmPath = dirname(dirname(realpathSync(process.env.PATH.split(':').map((at) => join(at, 'npm')).find(found))))
const require = createRequire(join(npmPath, 'package.json'))
const Config = require('@npmcli/config')
const registryFetch = require('npm-registry-fetch')
const pacote = require('pacote')

function found(path) {
  try {
    return Boolean(realpathSync(path))
  } catch {
    return false
  }
}

const text = (value, most) => (typeof value === 'string' ? value.slice(0, most) : '')
const signatures = (dist) => (Array.isArray(dist?.signatures) ? dist.signatures.slice(0, MAX_SIGNATURES) : [])

// From the registry of this package, whatever address the metadata names: as npm itself does it.
async function statementsOf(options, name, version) {
  const path = `/-/npm/v1/attestations/${name.replace('/', '%2f')}@${version}`
  const response = await registryFetch(path, { ...options, spec: `${name}@${version}`, integrity: null })
  const chunks = []
  let size = 0
  for await (const chunk of response.body) {
    size += chunk.length
    if (size > MAX_STATEMENTS) throw Object.assign(new Error('too large'), { code: 'EBADSIZE' })
    chunks.push(chunk)
  }
  return { document: Buffer.concat(chunks).toString() }
}

const codeOf = (error) => {
  const code = text(error?.code, 100) || 'EUNKNOWN'
  return code === 'E429' ? { code, retry_after: text([error.headers?.['retry-after']].flat()[0], 40) } : { code }
}

function versionOf(packument, version) {
  const manifest = packument.versions[version]
  return {
    version,
    published: text(packument.time?.[version], 60),
    deprecated: Boolean(manifest.deprecated),
    attested: Boolean(manifest.dist?.attestations),
    signatures: signatures(manifest.dist).map((one) => ({ keyid: text(one?.keyid, 200), sig: text(one?.sig, 200) })),
  }
}

async function factsOf(options, item) {
  const packument = await pacote.packument(item.name, { ...options, fullMetadata: true })
  const wanted = item.versions.length ? item.versions : Object.keys(packument.versions)
  const there = wanted.filter((version) => Object.hasOwn(packument.versions, version))
  const versions = there.map((one) => versionOf(packument, one))
  if (!item.statements) return { versions }
  for (const one of versions.filter((one) => one.attested)) {
    one.statements = await statementsOf(options, item.name, one.version).catch(codeOf)
  }
  return { versions }
}

async function main() {
  const packages = JSON.parse(readFileSync(0, 'utf8'))
  const config = new Config({ npmPath, argv: [], warn: false, ...require('@npmcli/config/lib/definitions') })
  await config.load()
  const answers = new Array(packages.length)
  let next = 0
  const work = async () => {
    while (next < packages.length) {
      const number = next++
      answers[number] = await factsOf(config.flat, packages[number]).catch(codeOf)
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, work))
  for (const one of answers) process.stdout.write(JSON.stringify(one) + '\n')
}

await main()
