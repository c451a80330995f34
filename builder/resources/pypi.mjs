// Runs uv inside the resolver container, for Python packages: writes its answers into the tar.
//
// This file decides nothing: the program that asked checks every answer. Four kinds of questions:
//   resolve: an exact package -> the pylock.toml that uv makes for it, for one Python on one platform, wheels only
//   newest:  a package -> its newest version there, and whether the pinned one is still there, or yanked
//   fetch:   a wheel -> its file, found by its hash among those that uv lists for its package
//   statements: a wheel -> what its index has of its publisher (PEP 740), or a code; nothing where none is named
// No message of uv's is passed on: it may hold an address with a credential. Only codes and names of packages are.

import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { addressIn, runClient } from './children.mjs'
import { netrcLogin } from './clients.mjs'
import { putBytes, putFile } from './tar.mjs'
import { Failed, persist, refuse } from './web.mjs'

const MAX_WHEEL = 4 * 1024 * 1024 * 1024
const MAX_PAGE = 64 * 1024 * 1024 // of the files of one project
const MAX_STATEMENTS = 1024 * 1024 // about one file
const SIMPLE_JSON = 'application/vnd.pypi.simple.v1+json'
const PARALLEL = 8

// uv asks a Python about itself before anything else. There is none here, and none is needed: version and platform
// of the Python in the image are arguments. So it gets what a Python of that version would say.
function description(python, path) {
  const full = `${python}.0`
  const markers = {
    implementation_name: 'cpython',
    implementation_version: full,
    os_name: 'posix',
    platform_machine: 'x86_64',
    platform_python_implementation: 'CPython',
    platform_release: '',
    platform_system: 'Linux',
    platform_version: '',
    python_full_version: full,
    python_version: python,
    sys_platform: 'linux',
  }
  const scheme = { platlib: '/none', purelib: '/none', include: '/none', scripts: '/none', data: '/none' }
  return {
    result: 'success',
    markers,
    sys_base_prefix: '/none',
    sys_base_exec_prefix: '/none',
    sys_prefix: '/none',
    sys_base_executable: path,
    sys_executable: path,
    sys_path: [],
    site_packages: [],
    stdlib: '/none',
    extension_suffixes: [],
    standalone: false,
    scheme,
    virtualenv: scheme,
    os: { name: 'manylinux', major: 2, minor: 36 },
    arch: 'x86_64',
    cpu_info: { detected: { kind: 'flags', flags: '' } },
    manylinux_compatible: true,
    gil_disabled: false,
    debug_enabled: false,
    pointer_size: '64',
  }
}

async function pythonFor(work, python) {
  const folder = join(work, `python-${python}`)
  const path = join(folder, 'python3')
  await mkdir(folder, { recursive: true })
  const text = JSON.stringify(description(python, path))
  await writeFile(path, `#!/bin/sh\ncat <<'JSON'\n${text}\nJSON\n`, { mode: 0o755 })
  return path
}

// What uv's words mean, and the package that they are about: the first that fits.
const NAME = '[a-z0-9][a-z0-9._-]{0,99}'
const PIN = `${NAME}(?:==[a-z0-9.!+]{1,99})?`
const MEANINGS = [
  [/No space left/, 'ENOSPC'],
  [/invalid peer certificate|UnknownIssuer/, 'CERT_UNTRUSTED'],
  [/\b(401|403|407|429|5\d\d) [A-Z][a-z]/, (found) => `E${found[1]}`],
  [/dns error|failed to lookup/, 'ENOTFOUND'],
  [/Connection refused/, 'ECONNREFUSED'],
  [/timed out|timeout/i, 'ETIMEDOUT'],
  [/unreachable/i, 'EHOSTUNREACH'],
  [/error decoding|unexpected (EOF|end)|incomplete message|connection (reset|closed)/i, 'ECONNRESET'],
  [new RegExp(`(${PIN}) has no (?:usable wheels|wheels with)`), 'ENOWHEEL'],
  [new RegExp(`(${NAME}) was not found in the package registry`), 'E404'],
  [new RegExp(`no versions? of (${PIN})`), 'ETARGET'],
  [/No solution found/, 'ECONFLICT'],
  [/Failed to fetch/, 'ECONNRESET'],
]

function meaning(text) {
  for (const [pattern, code] of MEANINGS) {
    const found = pattern.exec(text)
    if (!found) continue
    if (typeof code === 'function') return { code: code(found), spec: '' }
    return { code, spec: found[1] ?? '' }
  }
  return { code: 'EUV', spec: '' }
}

// uv as a child: its pylock.toml and the packages that it says are yanked, or an error with a code.
async function uv({ env, silence }, cwd, args) {
  const settings = { ...env, NO_COLOR: '1' }
  const done = await runClient('uv', ['pip', 'compile', ...args], { cwd, env: settings, silence })
  const fail = (found) => Object.assign(new Error(found.code), found)
  if (done.code) throw fail({ code: done.code, spec: '' })
  const yanked = [...done.stderr.matchAll(new RegExp(`^warning: \`(${PIN})\` is yanked`, 'gm'))].map((found) => found[1])
  if (done.status === 0) return { lock: Buffer.from(done.stdout), yanked }
  throw fail({ ...meaning(done.stderr.replace(/https?:\/\/\S+/g, '')), address: addressIn(done.stderr) })
}

const PYLOCK = ['--generate-hashes', '--format', 'pylock.toml']
const REQUIREMENTS = ['--format', 'requirements.txt']

let folders = 0

// These requirements for one Python on one platform, from an empty directory.
async function compile(tools, item, requirements, more = [], form = PYLOCK) {
  const folder = join(tools.work, `compile-${(folders += 1)}`)
  await mkdir(folder)
  await writeFile(join(folder, 'requirements.in'), requirements.map((line) => `${line}\n`).join(''))
  return uv(tools, folder, [
    '--python', await pythonFor(tools.work, item.python),
    '--python-version', item.python,
    '--python-platform', item.platform,
    '--only-binary', ':all:',
    ...form, '--no-header',
    ...more,
    'requirements.in',
  ])
}

async function newestOne(tools, item, before) {
  const ask = async (requirement, more, deprecated) => {
    try {
      const { lock, yanked } = await compile(tools, item, [requirement], ['--no-deps', ...more])
      const version = /^version = "([^"]{1,100})"$/m.exec(lock.toString())
      if (!version) return { code: 'E404' }
      return { versions: [{ version: version[1], deprecated: deprecated && yanked.length > 0 }] }
    } catch (error) {
      return { code: error.code ?? 'EUNKNOWN' }
    }
  }
  return { found: await ask(item.name, before, false), pinned: await ask(`${item.name}==${item.pinned}`, [], true) }
}

// Requirements that one uv can be asked about: each package once, all for one Python on one platform.
function groups(items) {
  const found = []
  for (const item of items) {
    const fits = (group) =>
      group[0].python === item.python &&
      group[0].platform === item.platform &&
      group.every((other) => other.name !== item.name || other.version === item.version)
    const group = found.find(fits)
    if (group) group.push(item)
    else found.push([item])
  }
  return found
}

// Where each wheel lies, by its hash; a package that is gone is named.
async function addresses(tools, items) {
  const found = new Map()
  for (const group of groups(items)) {
    const pins = [...new Set(group.map((item) => `${item.name}==${item.version}`))]
    const { lock } = await compile(tools, group[0], pins, ['--no-deps'])
    for (const [, url, sha256] of lock.toString().matchAll(/url = "([^"]+)"[^}]*?sha256 = "([0-9a-f]{64})"/g)) {
      found.set(sha256, url)
    }
  }
  return found
}

// Which index each package is from, as uv says: a lock of its does not.
async function indexes(tools, items) {
  const found = new Map()
  for (const group of groups(items)) {
    const pins = [...new Set(group.map((item) => `${item.name}==${item.version}`))]
    const more = ['--no-deps', '--no-annotate', '--emit-index-annotation']
    const { lock } = await compile(tools, group[0], pins, more, REQUIREMENTS)
    for (const [, name, index] of lock.toString().matchAll(/^([a-z0-9._-]+)==[^\n]*\n +# from (\S+)$/gm)) {
      found.set(name, index)
    }
  }
  return found
}

async function download(web, url, path) {
  const response = await web.follow(url, await netrcLogin(url))
  if (response.statusCode !== 200) throw refuse(response)
  return web.save(response, MAX_WHEEL, path)
}

async function fetchAll(tools, items) {
  const { web, work, progress } = tools
  if (!items.length) return
  progress({ step: 'fetch', done: 0, total: items.length, bytes: 0 }) // what fails from here on is this step's
  const urls = await addresses(tools, items)
  let bytes = 0
  for (const [number, item] of items.entries()) {
    const label = `${item.name}==${item.version}`
    const url = urls.get(item.sha256)
    if (!url) throw Object.assign(new Failed('EINTEGRITY'), { item: item.filename, spec: label })
    const path = join(work, 'wheel')
    const size = await persist(() => download(web, url, path)).catch((error) => {
      throw Object.assign(error, { item: item.filename, spec: label })
    })
    await putFile(`wheels/${number}.whl`, { path, size })
    await rm(path)
    bytes += size
    progress({ step: 'fetch', name: item.filename, done: number + 1, total: items.length, bytes })
  }
}

// A document of the index that uv asked too, through the same door.
async function document(web, address, limit, accept) {
  return persist(async () => {
    const response = await web.follow(address, { accept, ...(await netrcLogin(address)) })
    if (response.statusCode !== 200) throw refuse(response)
    return { type: response.headers['content-type'] ?? '', bytes: await web.document(response, limit) }
  })
}

// Each file of a project with what the index says of it; an index that answers with a page for people names no statements.
async function filesOf(web, page) {
  const { type, bytes } = await document(web, page, MAX_PAGE, SIMPLE_JSON)
  return type.startsWith(SIMPLE_JSON) ? (JSON.parse(bytes).files ?? []) : []
}

async function statementsOf(web, item, index, pages) {
  const page = new URL(`${item.name}/`, index.replace(/\/*$/, '/')).href
  if (!pages.has(page)) pages.set(page, filesOf(web, page))
  const file = (await pages.get(page)).find((one) => one?.hashes?.sha256 === item.sha256)
  if (typeof file?.provenance !== 'string') return {}
  const { bytes } = await document(web, new URL(file.provenance, page).href, MAX_STATEMENTS, 'application/json')
  return { document: bytes.toString() }
}

async function allStatements(tools, items) {
  const { web, progress } = tools
  if (!items.length) return
  progress({ step: 'facts', name: 'who stated what of the wheels', done: 0, total: items.length })
  const from = await indexes(tools, items)
  const answers = new Array(items.length)
  const pages = new Map()
  let next = 0
  let done = 0
  const work = async () => {
    while (next < items.length) {
      const number = next++
      const item = items[number]
      const index = from.get(item.name)
      const answer = index ? statementsOf(web, item, index, pages) : Promise.resolve({})
      answers[number] = await answer.catch((error) => ({ code: String(error?.code ?? error?.name ?? 'EUNKNOWN').slice(0, 100) }))
      progress({ step: 'facts', name: item.filename, done: (done += 1), total: items.length })
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, work))
  await putBytes('statements.json', Buffer.from(JSON.stringify(answers)))
}

// Releases that are too young are not chosen; of the pinned package itself that is for who asked to refuse.
function ages(asked, pinned) {
  if (!asked.before) return []
  const free = [...asked.excepted, ...pinned].map((name) => ['--exclude-newer-package', `${name}=2999-01-01T00:00:00Z`])
  return ['--exclude-newer', asked.before, ...free.flat()]
}

export async function pypi(asked, tools, result) {
  const { progress } = tools
  result.yanked = []
  for (const [number, item] of asked.resolve.entries()) {
    progress({ step: 'resolve', name: item.label, done: number, total: asked.resolve.length })
    const pin = `${item.name}==${item.version}`
    const { lock, yanked } = await compile(tools, item, [pin], ages(asked, [item.name])).catch((error) => {
      throw Object.assign(error, { item: item.label })
    })
    result.yanked.push(yanked)
    await putBytes(`pylocks/${number}.toml`, lock)
  }
  for (const [number, item] of asked.newest.entries()) {
    progress({ step: 'newest', name: item.name, done: number, total: asked.newest.length })
    result.newest.push(await newestOne(tools, item, ages(asked, [])))
  }
  await fetchAll(tools, asked.fetch)
  await allStatements(tools, asked.statements)
}
