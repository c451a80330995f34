// Runs apt inside the resolver container, against the dpkg status of a base and with the sources that it is given.
//
// This file decides nothing; the program that asked checks every answer. For each question:
//   resolve: names, status, suite -> what to add, apt's order for dpkg, who signed the index of each; with bring the packages
//   fetch:   names and versions   -> the packages
// No text of apt's is passed on: it may hold an address with a credential. Only codes of ours are, and names.

import { createHash } from 'node:crypto'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { addressIn, runClient, SILENCE } from './children.mjs'
import { putBytes, putFile } from './tar.mjs'

const ORIGINS = { debian: 'Debian', ubuntu: 'Ubuntu' }
const KEYRINGS = ['/usr/share/keyrings', '/etc/apt/trusted.gpg.d', '/etc/apt/keyrings']

const progress = (event) => process.stderr.write(JSON.stringify(event) + '\n')

const patience = { silence: SILENCE }

class AptFailed extends Error {
  constructor(code, item = '') {
    super(code)
    this.code = code
    this.item = item
  }
}

// A child: its output, and its exit code. Its words are looked at and never passed on.
async function run(env, program, args, cwd) {
  const done = await runClient(program, args, { env, cwd, silence: patience.silence })
  if (done.code) throw new AptFailed(done.code)
  return done
}

// apt's words to a code; the more telling ones first.
const MEANINGS = [
  // First what the server said: without its index, apt calls a repository unsigned.
  [/\b(?:401|403|407) {1,3}[A-Z]/, 'E401'],
  [/\b429 {1,3}[A-Z]/, 'E429'],
  [/\b5\d\d {1,3}[A-Z]/, 'E503'],
  [/NO_PUBKEY|EXPKEYSIG|REVKEYSIG|BADSIG|is not signed|signatures (?:were|couldn't)|not yet valid|no longer valid/, 'EUNSIGNED'],
  [/Hash Sum mismatch|has an unexpected size|unexpected size/, 'EINTEGRITY'],
  [/[Cc]ertificate verification|SSL|TLS/, 'ECERT'],
  [/No space left/, 'ENOSPC'],
  [/does not have a Release file|404 {1,3}Not Found/, 'ENOINDEX'],
  [/timed out|[Tt]imeout/, 'ETIMEDOUT'], // also of a server that says nothing any more
  [/[Cc]onnection (?:reset|closed)|closed (?:the )?connection|unexpectedly closed|Error reading from server/, 'ECONNRESET'],
  [/Could not resolve|Temporary failure|Could not connect|Unable to connect|Cannot initiate|unreachable|Connection failed/, 'ENOTFOUND'],
  [/Failed to fetch/, 'ECONNRESET'], // whatever else ends a download: after a cut one it says "Undetermined Error"
]

function meaning(words, otherwise) {
  return MEANINGS.find(([pattern]) => pattern.test(words))?.[1] ?? otherwise
}

const NAME = '[a-z0-9][a-z0-9+.-]{1,99}'
const GONE = new RegExp(`Unable to locate package (${NAME})|Package '(${NAME})' has no installation candidate|Version '[^']{1,120}' for '(${NAME})`)

function aptFailure({ stdout, stderr }) {
  const words = `${stdout.toString().slice(-20000)}\n${stderr}`
  const gone = GONE.exec(words)
  if (gone) return new AptFailed('E404', gone.slice(1).find(Boolean))
  return Object.assign(new AptFailed(meaning(words, 'EAPT')), { address: addressIn(words) })
}

// What one question sees: its own folders, architecture and preferences, and nobody's configuration.
class Apt {
  constructor({ env, sources }, folder, asked) {
    this.env = env
    this.given = sources
    this.folder = folder
    this.asked = asked
  }

  async prepare(debian) {
    const folders = ['state/lists/partial', 'cache/archives/partial', 'sources', 'none', 'keys']
    for (const name of folders) await mkdir(join(this.folder, name), { recursive: true })
    await writeFile(join(this.folder, 'status'), this.asked.status ?? '')
    await writeFile(join(this.folder, 'list'), '')
    this.keys = []
    for (const [number, key] of debian.keys.entries()) {
      const bytes = Buffer.from(key, 'base64')
      const armoured = bytes.subarray(0, 5).toString() === '-----'
      this.keys.push(join(this.folder, 'keys', `given-${number}.${armoured ? 'asc' : 'gpg'}`))
      await writeFile(this.keys.at(-1), bytes)
    }
    for (const file of this.sources(debian)) {
      const content = file.content.replace(/@KEY(\d+)@/g, (_, number) => this.keys[Number(number)] ?? '')
      await writeFile(join(this.folder, 'sources', file.name), content)
    }
    await writeFile(join(this.folder, 'preferences'), this.preferences())
    const values = {
      'Dir::State': join(this.folder, 'state'),
      'Dir::State::status': join(this.folder, 'status'),
      'Dir::Cache': join(this.folder, 'cache'),
      'Dir::Etc::sourcelist': join(this.folder, 'list'),
      'Dir::Etc::sourceparts': join(this.folder, 'sources'),
      'Dir::Etc::preferences': join(this.folder, 'preferences'),
      'Dir::Etc::preferencesparts': join(this.folder, 'none'),
      'APT::Architecture': this.asked.architecture,
      'APT::Architectures': this.asked.architecture,
      'APT::Sandbox::User': 'root',
      'APT::Install-Recommends': 'false',
      'APT::Install-Suggests': 'false',
      'APT::Update::Error-Mode': 'any',
      'APT::Get::AllowUnauthenticated': 'false',
      'Acquire::AllowInsecureRepositories': 'false',
      'Acquire::AllowWeakRepositories': 'false',
      'Acquire::AllowDowngradeToInsecureRepositories': 'false',
      'Acquire::ForceHash': 'SHA256',
      'Acquire::Languages': 'none',
      'Acquire::GzipIndexes': 'false',
      'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled': 'false',
      'Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled': 'false',
    }
    this.options = Object.entries(values).flatMap(([name, value]) => ['-o', `${name}=${value}`])
  }

  // The sources that came with the questions, else the address behind the alias.
  sources(debian) {
    const { address } = this.given
    if (debian.sources.length || !address) return debian.sources
    return [{ name: 'given.list', content: `deb ${address} ${this.asked.codename} main\n` }]
  }

  // Only what the base's own distribution released for the base's own suite.
  preferences() {
    if (!this.asked.distribution) return ''
    const origin = ORIGINS[this.asked.distribution]
    const pins = ['', '-security', '-updates'].map(
      (part) => `Package: *\nPin: release o=${origin},n=${this.asked.codename}${part}\nPin-Priority: 500\n`,
    )
    return [...pins, 'Package: *\nPin: release o=*\nPin-Priority: -1\n'].join('\n')
  }

  async call(program, ...args) {
    const done = await run(this.env, program, [...this.options, ...args], this.folder)
    if (done.status !== 0) throw aptFailure(done)
    return done.stdout.toString()
  }

  async update() {
    progress({ step: 'resolve', name: 'Debian package lists' })
    await this.call('apt-get', '-qq', 'update')
  }

  // Every Packages file that apt has: where it lies, what its release calls it, and that release's codename.
  async indexes() {
    const format = '$(CREATED_BY)\t$(FILENAME)\t$(METAKEY)\t$(CODENAME)'
    const lines = (await this.call('apt-get', 'indextargets', '--format', format)).split('\n')
    const rows = lines.map((line) => line.split('\t')).filter((row) => row[0] === 'Packages')
    return rows.map(([, file, key, codename]) => ({ file, key, codename }))
  }
}

const STEP = new RegExp(`^(Inst|Conf|Remv) (${NAME})(?::[a-z0-9]+)? (?:\\[[^\\]]*\\] )?(?:\\(([^ ]+) |\\[)`)
const URI = new RegExp(`^'[^']*' (${NAME})_([^_ ]+)_([a-z0-9]+)\\.deb (\\d+) SHA256:([0-9a-f]{64})$`)

// apt's order: runs of unpacking and configuring.
function stepsOf(text) {
  const steps = []
  for (const line of text.split('\n')) {
    const found = STEP.exec(line)
    if (!found) continue
    if (found[1] === 'Remv') throw new AptFailed('EREMOVES', found[2])
    const action = found[1] === 'Inst' ? 'unpack' : 'configure'
    if (steps.at(-1)?.action !== action) steps.push({ action, names: [] })
    steps.at(-1).names.push(found[2])
  }
  return steps
}

function packagesOf(text) {
  return text.split('\n').filter(Boolean).map((line) => {
    const found = URI.exec(line.trim())
    if (!found) throw new AptFailed('EBADOUTPUT')
    const version = decodeURIComponent(found[2].replace(/%(?![0-9a-f]{2})/gi, '%25'))
    return { name: found[1], version, architecture: found[3], size: Number(found[4]), sha256: found[5] }
  })
}

// Keys as gpgv reads them: binary, or the packets inside of the armour.
async function keyrings(folder, extra) {
  const files = []
  for (const place of KEYRINGS) {
    const names = await readdir(place).catch(() => [])
    for (const name of names.sort()) if (/\.(gpg|asc)$/.test(name)) files.push(join(place, name))
  }
  files.push(...extra)
  const found = []
  for (const [number, file] of files.entries()) {
    let bytes = await readFile(file)
    if (bytes.subarray(0, 5).toString() === '-----') {
      const body = /-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[!-~ ]+\r?\n)*\r?\n([A-Za-z0-9+/=\s]+?)(?:\n=[A-Za-z0-9+/]{4})?\s*-----END/
      const armoured = [...bytes.toString().matchAll(new RegExp(body, 'g'))]
      bytes = Buffer.concat(armoured.map((match) => Buffer.from(match[1], 'base64')))
    }
    const path = join(folder, 'keys', `${number}.gpg`)
    await writeFile(path, bytes)
    found.push('--keyring', path)
  }
  return found
}

// The primary keys whose signatures are good, by gpgv's status. It calls a signature valid too where the key has
// expired or was revoked; only what it calls good before counts.
export function goodSigners(status) {
  const found = new Set()
  let good = false
  for (const line of status.split('\n')) {
    const [mark, word, ...rest] = line.split(' ')
    if (mark !== '[GNUPG:]') continue
    if (word === 'VALIDSIG' && good && /^(?:[0-9A-F]{40}|[0-9A-F]{64})$/.test(rest[9])) found.add(rest[9])
    if (['NEWSIG', 'VALIDSIG'].includes(word)) good = false
    if (word === 'GOODSIG') good = true
  }
  return [...found].sort()
}

// The release that vouches for an index: the text that is signed and no other, and the keys that signed it.
async function releaseOf(apt, index, keys) {
  const start = index.file.slice(0, -index.key.replaceAll('/', '_').length)
  const inline = (await exists(`${start}InRelease`)) ? `${start}InRelease` : ''
  const text = inline ? join(apt.folder, 'signed') : `${start}Release`
  if (inline) await rm(text, { force: true })
  const args = inline ? ['--output', text, inline] : [`${start}Release.gpg`, text]
  const { stdout } = await run(apt.env, 'gpgv', ['--status-fd', '1', ...keys, ...args], apt.folder)
  const signers = goodSigners(stdout.toString())
  return { text: signers.length ? await readFile(text, 'utf8') : '', signers }
}

const exists = (path) => stat(path).then(() => true, () => false)

// The chain from a key to a package, followed here once more: release -> SHA-256 of the index -> of the package.
async function signersOf(apt, packages, keys) {
  const wanted = new Map(packages.map((one) => [one.sha256, one]))
  for (const index of await apt.indexes()) {
    if (!(await exists(index.file))) continue
    const bytes = await readFile(index.file)
    const here = [...bytes.toString('latin1').matchAll(/^SHA256: ([0-9a-f]{64})$/gm)].filter((match) => wanted.has(match[1]))
    if (!here.length) continue
    const { text, signers } = await releaseOf(apt, index, keys)
    const sums = text.slice(text.indexOf('\nSHA256:'))
    const digest = createHash('sha256').update(bytes).digest('hex')
    const named = sums.split('\n').some((line) => {
      const [hash, , key] = line.trim().split(/ +/)
      return hash === digest && key === index.key
    })
    if (!signers.length || !named) throw new AptFailed('EUNSIGNED')
    for (const match of here) wanted.get(match[1]).signer ??= signers[0]
  }
  const without = packages.find((one) => !one.signer)
  if (without) throw new AptFailed('EUNSIGNED', without.name)
}

async function resolveOne(apt) {
  const { asked } = apt
  await apt.update()
  if (!(await apt.indexes()).some((index) => index.codename === asked.codename)) throw new AptFailed('ENOSUITE', asked.codename)
  for (const name of asked.names) {
    if (!(await apt.call('apt-cache', 'show', '--no-all-versions', name).catch(() => ''))) throw new AptFailed('E404', name)
  }
  const install = ['--no-remove', '--no-upgrade', '-y', 'install', ...asked.names]
  const steps = stepsOf(await apt.call('apt-get', '-s', ...install))
  const packages = packagesOf(await apt.call('apt-get', '-qq', '--print-uris', ...install))
  await signersOf(apt, packages, await keyrings(apt.folder, apt.keys))
  return { steps, packages }
}

// One package at a time: what is missing can be named, and leaves the disk when it has left.
async function fetchAll(apt, items) {
  for (const [number, item] of items.entries()) {
    progress({ step: 'fetch', name: item.name, done: number, total: items.length })
    const folder = join(apt.folder, `fetch-${number}`)
    await mkdir(folder)
    const spec = `${item.name}${item.architecture === 'all' ? '' : `:${item.architecture}`}=${item.version}`
    const done = await run(apt.env, 'apt-get', [...apt.options, '-qq', 'download', spec], folder)
    const [file] = await readdir(folder)
    if (done.status !== 0 || !file) {
      const failure = aptFailure(done)
      // An index may name what its mirror no longer has.
      const code = failure.code === 'ENOINDEX' ? 'E404' : failure.code
      throw Object.assign(new AptFailed(code, `${item.name}@${item.version}`), { address: failure.address })
    }
    const path = join(folder, file)
    await putFile('package.deb', { path, size: (await stat(path)).size })
  }
}

// ``asked``: sources, keys, questions. ``work``: for what holds no secret; ``env``: apt's environment; ``sources``: what
// the operator gives in place of them.
export async function debian(asked, { env, sources, work, silence }) {
  patience.silence = silence
  for (const [number, one] of [...asked.resolve, ...asked.fetch].entries()) {
    const apt = new Apt({ env, sources }, join(work, `debian-${number}`), one)
    await apt.prepare(asked)
    if (one.packages) {
      await apt.update()
      await fetchAll(apt, one.packages)
      continue
    }
    const answer = await resolveOne(apt)
    await putBytes('debian.json', Buffer.from(JSON.stringify(answer)))
    if (one.bring) await fetchAll(apt, answer.packages)
  }
}
