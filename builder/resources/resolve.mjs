// Runs npm inside the resolver container: reads /run/job/job.json, writes one tar to standard output.
//
// This file decides nothing. A job about images of a registry goes to pull.mjs or push.mjs, one for Python packages to
// pypi.mjs. Else it answers five kinds of questions, and the program that asked checks every answer:
//   resolve: exact root packages -> the package-lock.json that npm makes for them in an empty directory
//   view:    name and range      -> the platform fields of the best matching version, or npm's error code
//   newest:  name, range, pinned -> the versions in that range, and whether the pinned one is still there
//   facts:   name and versions   -> when they were published and how they are signed (facts.mjs)
//   fetch:   name and version    -> the tarball, found in npm's cache by its integrity
// The tar holds the locks, facts.json, the tarballs in the order asked, and result.json last: what came before a failure is
// not lost. Progress goes to standard error, one JSON object a line. No message of npm's is
// passed on: it may hold an address with a credential. Only npm's error codes are.

import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { addressIn, endClients, runClient, SILENCE } from './children.mjs'
import { clientEnvironments, debianSources, loginOf, netrcLogin, webOptions } from './clients.mjs'
import { debian } from './debian.mjs'
import { pull } from './pull.mjs'
import { push } from './push.mjs'
import { pypi } from './pypi.mjs'
import { conclude, putBytes, putFile } from './tar.mjs'
import { failedHop, secondsOf, waitAskedFor, Web } from './web.mjs'

const FETCH_BATCH = 12 // tarballs per npm
const FETCH_PARALLEL = 2 // npm at once
const LOOK = 2000 // milliseconds between two looks at a download
const BACKOFF = 30_000 // milliseconds that npm waits in all before it tries again
const LEAST = 1024 // bytes that must have come within the silence: a trickle is a stall
const ON_THE_WAY = /^(E40[137]|E5\d\d|ECONN|ENOTFOUND|EAI_AGAIN|E?TIMEDOUT|EHOSTUNREACH|ENETUNREACH|ENPM|ERR_SOCKET|FETCH_ERROR|EAPT|EUV)/
const SLOW_DOWN = 'E429' // it ends the job: every further question would make it worse
const JOB = dirname(fileURLToPath(import.meta.url))

let step = '' // what we are doing
let silence = SILENCE // milliseconds that a registry may say nothing

function progress(event) {
  step = event.step
  process.stderr.write(JSON.stringify(event) + '\n')
}

class NpmFailed extends Error {
  constructor(code, spec = '') {
    super(code)
    this.code = code
    this.spec = spec
  }
}

// The package that an error is about, if npm says so in the one form that cannot hold anything else.
function specIn(error) {
  const text = `${error?.summary ?? ''} ${error?.detail ?? ''}`
  const found = /(?:'|for )((?:@[a-z0-9._-]{1,100}\/)?[a-z0-9._-]{1,214}@[0-9a-z.^~<>=*+-]{1,60})/i.exec(text)
  return found ? found[1].replace(/\.$/, '') : ''
}

// npm as a child: its JSON output, or NpmFailed with its error code.
async function npm(env, cwd, args) {
  const { status, stdout, code } = await runClient('npm', [...args, '--json'], { cwd, env, silence })
  if (code) throw new NpmFailed(code)
  let output = null
  try {
    output = JSON.parse(stdout || 'null')
  } catch {
    if (status === 0 && args[0] === 'view') throw new NpmFailed('EBADOUTPUT')
  }
  if (status === 0) return output
  const failed = new NpmFailed(String(output?.error?.code ?? 'ENPM').slice(0, 100), specIn(output?.error))
  if (failed.code === SLOW_DOWN) failed.address = addressIn(`${output.error.summary} ${output.error.detail}`)
  throw failed
}

async function resolveOne(env, work, number, item) {
  const folder = join(work, `resolve-${number}`)
  await mkdir(folder)
  const root = { name: 'resolve', version: '0.0.0', private: true, dependencies: item.dependencies }
  await writeFile(join(folder, 'package.json'), JSON.stringify(root))
  // npm holds what is required against the machine it runs on, whatever --os and --cpu say; --force stops that.
  // Who asked checks the platform of every package itself.
  const foreign = item.os !== process.platform || item.cpu !== process.arch
  await npm(env, folder, [
    'install', ...(foreign ? ['--force'] : []), '--package-lock-only', '--ignore-scripts', '--no-audit', '--no-fund', '--lockfile-version=3',
    '--install-strategy=hoisted', '--omit=dev',
    `--os=${item.os}`, `--cpu=${item.cpu}`, `--libc=${item.libc}`, ...(item.before ? [`--before=${item.before}`] : []),
    ...(item.excepted ?? []).map((name) => `--min-release-age-exclude=${name}`),
  ])
  return readFile(join(folder, 'package-lock.json'))
}

async function viewOne(env, work, item) {
  const found = await npm(env, work, ['view', `${item.name}@${item.range}`, 'name', 'os', 'cpu', 'libc'])
  const best = Array.isArray(found) ? found.at(-1) : found
  if (!best) throw new NpmFailed('E404')
  return { os: best.os ?? [], cpu: best.cpu ?? [], libc: best.libc ?? [] }
}

// A range, a tag or a version -> its versions, or npm's error code. Why a version is deprecated is its publisher's
// text, which nobody needs.
async function versionsOf(env, work, name, range) {
  try {
    const found = await npm(env, work, ['view', `${name}@${range}`, 'name', 'version', 'deprecated'])
    const versions = [found ?? []].flat().map((one) => ({ version: one.version, deprecated: Boolean(one.deprecated) }))
    return versions.length ? { versions } : { code: 'E404' }
  } catch (error) {
    if (error.code === SLOW_DOWN) throw Object.assign(error, { item: name })
    return { code: error.code ?? 'EUNKNOWN' }
  }
}

async function newestOne(env, work, item) {
  const [found, pinned] = await Promise.all(
    [item.range, item.pinned].map((range) => versionsOf(env, work, item.name, range)),
  )
  return { found, pinned }
}

// A child: it speaks TLS itself. Its lines are put into one array as they are.
async function askFacts(env, work, facts) {
  const options = { cwd: work, env, silence, input: JSON.stringify(facts) }
  const { status, stdout, code } = await runClient(process.execPath, [join(JOB, 'facts.mjs')], options)
  if (code || status !== 0) throw new NpmFailed(code || 'ENPM')
  const lines = stdout.split('\n').filter(Boolean)
  const slow = lines.findIndex((line) => line.startsWith(`{"code":"${SLOW_DOWN}"`))
  if (slow >= 0) {
    const retryAfter = secondsOf(JSON.parse(lines[slow]).retry_after)
    throw Object.assign(new NpmFailed(SLOW_DOWN), { item: facts[slow].name, retryAfter })
  }
  return Buffer.from(`[${lines.join(',')}]`)
}

const cached = (work, integrity) => {
  const [algorithm, hex] = integrity.split(':')
  return join(work, 'cache', '_cacache', 'content-v2', algorithm, hex.slice(0, 2), hex.slice(2, 4), hex.slice(4))
}

const sizeOf = (path) => stat(path).then((found) => found.size, () => null)

const STALLED = 'ESTALLED' // we ended it, because nothing came

// Several at once; when that fails, one by one, so that the one that failed can be named.
async function fetchBatch(env, work, batch) {
  const add = (items) => npm(env, work, ['cache', 'add', ...items.map((item) => `${item.name}@${item.version}`)])
  try {
    await add(batch)
  } catch (error) {
    for (const item of batch) {
      if ((await sizeOf(cached(work, item.integrity))) !== null) continue
      if (error.code === STALLED) throw Object.assign(new NpmFailed('ETIMEDOUT'), { item: `${item.name}@${item.version}` })
      try {
        await add([item])
      } catch (error) {
        const told = error.code === STALLED ? new NpmFailed('ETIMEDOUT') : error
        throw Object.assign(told, { item: `${item.name}@${item.version}` })
      }
    }
  }
}

// Bytes of downloads under way: npm says nothing about them, and one package may take half a minute.
async function underWay(work) {
  const folder = join(work, 'cache', '_cacache', 'tmp')
  const names = await readdir(folder).catch(() => [])
  const sizes = await Promise.all(names.map((name) => sizeOf(join(folder, name))))
  return sizes.reduce((total, size) => total + (size ?? 0), 0)
}

// Batches side by side; each tarball leaves as soon as those before it have left.
async function fetchAll(env, work, items) {
  if (!items.length) return
  progress({ step: 'fetch', done: 0, total: items.length, bytes: 0 }) // a failure before the first look is this step's
  const batches = []
  for (let start = 0; start < items.length; start += FETCH_BATCH) batches.push(items.slice(start, start + FETCH_BATCH))
  const count = { done: 0, bytes: 0, shown: 0 }
  const look = { bytes: 0, done: -1, since: Date.now() }
  // npm's own limit holds for its sockets one by one, each tried again: this one holds for all of them together.
  const watch = () => {
    if (count.shown - look.bytes >= LEAST || count.done > look.done) {
      Object.assign(look, { bytes: count.shown, done: count.done, since: Date.now() })
    } else if (Date.now() - look.since > 3 * silence + BACKOFF) endClients(STALLED)
  }
  const tell = async () => {
    count.shown = Math.max(count.shown, count.bytes + (await underWay(work)))
    progress({ step: 'fetch', done: count.done, total: items.length, bytes: count.shown })
  }
  const timer = setInterval(() => tell().then(watch), LOOK)
  const fetched = new Map()
  const start = (number) => {
    if (number >= batches.length) return
    const wait = fetchBatch(env, work, batches[number])
    wait.catch(() => {}) // it is awaited below, in order
    fetched.set(number, wait)
  }
  try {
    for (let number = 0; number < FETCH_PARALLEL; number += 1) start(number)
    for (const [number, batch] of batches.entries()) {
      await fetched.get(number)
      start(number + FETCH_PARALLEL)
      for (const item of batch) {
        const path = cached(work, item.integrity)
        const size = await sizeOf(path)
        if (size === null) {
          throw Object.assign(new NpmFailed('EINTEGRITY'), { item: `${item.name}@${item.version}` })
        }
        await putFile(`tarballs/${count.done}.tgz`, { path, size })
        await rm(path)
        count.done += 1
        count.bytes += size
      }
      await tell()
    }
  } finally {
    clearInterval(timer)
    await Promise.allSettled(fetched.values())
  }
}

async function answer(env, work, job, result) {
  for (const [number, item] of job.resolve.entries()) {
    progress({ step: 'resolve', name: item.label, done: number, total: job.resolve.length })
    const lock = await resolveOne(env, work, number, item).catch((error) => {
      throw Object.assign(error, { item: item.label })
    })
    await putBytes(`locks/${number}.json`, lock)
  }
  for (const item of job.view) {
    progress({ step: 'view', name: item.name })
    const answered = await viewOne(env, work, item).catch((error) => {
      if (error.code === SLOW_DOWN) throw Object.assign(error, { item: item.name })
      return { code: error.code ?? 'EUNKNOWN' }
    })
    result.view.push(answered)
  }
  for (const [number, item] of job.newest.entries()) {
    progress({ step: 'newest', name: item.name, done: number, total: job.newest.length })
    result.newest.push(await newestOne(env, work, item))
  }
  if (job.facts?.length) {
    progress({ step: 'facts', name: 'who signed them, and when they were published', done: 0, total: job.facts.length })
    await putBytes('facts.json', await askFacts(env, work, job.facts))
  }
  await fetchAll(env, work, job.fetch)
}

// npm, uv and apt do not tell at which hop they failed; a request of ours to the same registry does.
async function hopOf(env, web, error) {
  if (!web.proxy || error.hop || !ON_THE_WAY.test(error.code ?? '')) return {}
  if (error.address !== undefined) return failedHop(web, error.address)
  const scope = /^(@[^/]+)\/./.exec(error.spec || error.item || '')?.[1]
  const ask = (key) => npmSays(env, ['config', 'get', key])
  const scoped = scope ? await ask(`${scope}:registry`) : ''
  return failedHop(web, /^https?:/.test(scoped) ? scoped : await ask('registry'))
}

async function waitOf(web, error) {
  if (error.code !== SLOW_DOWN || error.retryAfter || !error.address) return {}
  return waitAskedFor(web, error.address, await netrcLogin(error.address))
}

// One line of npm's; empty when it fails.
async function npmSays(env, args) {
  const { status, stdout } = await runClient('npm', args, { env, silence })
  return status === 0 ? stdout.trim() : ''
}

async function perform(job, work, result) {
  const web = new Web(await webOptions(job))
  if (job.pull) return pull(job.pull, { web, login: await loginOf(), work }, result)
  if (job.push) return push(job.push, { web, login: await loginOf(), work }, result)
  const { npm: env, apt, uv } = await clientEnvironments(job, work)
  const located = async (error) => {
    throw Object.assign(error, await hopOf(env, web, error), await waitOf(web, error))
  }
  if (job.debian) return debian(job.debian, { env: apt, sources: debianSources(job), work, silence }).catch(located)
  if (job.pypi) return pypi(job.pypi, { env: uv, web, work, progress, silence }, result).catch(located)
  await answer(env, work, job, result).catch(located)
}

const job = JSON.parse(await readFile(join(JOB, 'job.json'), 'utf8'))
silence = job.silence ?? SILENCE
const result = { schema: 1, error: null, view: [], newest: [] }
const told = ({ item = '', spec = '', hop = '', retryAfter = '' }) => ({ item, spec, step, hop, retry_after: retryAfter })

await conclude(
  result,
  async () => {
    const work = await mkdtemp(join(tmpdir(), 'resolve-'))
    try {
      await perform(job, work, result)
    } finally {
      await rm(work, { recursive: true, force: true })
    }
  },
  told,
)
