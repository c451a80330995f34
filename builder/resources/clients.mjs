// How each client that fetches is set up: npm, uv, apt, and our own requests. One place, so that a proxy, an
// authority or a login reaches all of them. What holds a secret stays in the job's memory file system: environments
// name files, and only npm's holds the values that its configuration asks for by name.

import { existsSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { rootCertificates } from 'node:tls'
import { fileURLToPath } from 'node:url'

import { SILENCE } from './children.mjs'

const JOB = dirname(fileURLToPath(import.meta.url))
const RETRIES = 3

const given = (name) => (existsSync(join(JOB, name)) ? join(JOB, name) : '')

async function read(name, otherwise) {
  return given(name) ? JSON.parse(await readFile(given(name), 'utf8')) : otherwise
}

// The job names an address only where settings.toml does; else a client's own configuration decides.
const addressOf = (job, alias) => job.registries?.[alias] ?? ''

// What Web takes.
export async function webOptions(job) {
  return {
    proxy: await read('proxy.json', null),
    authorities: given('ca.pem') ? [...rootCertificates, await readFile(given('ca.pem'), 'utf8')] : null,
    silence: job.silence ?? SILENCE,
  }
}

// Environments: npm, uv, apt. ``work`` is for what holds no secret, caches above all.
export async function clientEnvironments(job, work) {
  const folder = join(JOB, 'clients')
  const home = join(work, 'home')
  for (const path of [folder, home]) await mkdir(path, { recursive: true, mode: 0o700 })
  const silence = job.silence ?? SILENCE
  const setup = { job, silence, work, folder, proxy: (await read('proxy.json', null)) ?? {}, bundle: await authorities(folder) }
  const common = {
    PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    HOME: home,
    LC_ALL: 'C.UTF-8',
  }
  return {
    npm: { ...(await read('npm-variables.json', {})), ...common, ...(await npm(setup)) },
    uv: { ...common, ...(await uv(setup)) },
    apt: { ...common, ...(await apt(setup)) },
  }
}

// uv and apt take one file in place of their own list: it holds both.
async function authorities(folder) {
  if (!given('ca.pem')) return ''
  const bundle = join(folder, 'ca.pem')
  await writeFile(bundle, [...rootCertificates, await readFile(given('ca.pem'), 'utf8'), ''].join('\n'))
  return bundle
}

// A quoted string means the same in npm's, uv's and apt's files for the letters that an address may have.
const lines = (pairs) => pairs.filter(([, value]) => value).map(([start, value, end = '']) => `${start}"${value}"${end}\n`)

async function npm({ job, silence, work, folder, proxy }) {
  const config = (name, value) => [`npm_config_${name}`, value]
  const own = join(folder, 'npmrc')
  const bypass = (proxy.no_proxy ?? []).join(',')
  await writeFile(own, lines([['proxy=', proxy.http], ['https-proxy=', proxy.https], ['noproxy=', bypass]]).join(''))
  // Two files: npm refuses to read one file as the configuration of both the user and the machine.
  const user = given('npmrc') || join(folder, 'user-npmrc')
  if (!given('npmrc')) await writeFile(user, '')
  return {
    ...(given('ca.pem') ? { NODE_EXTRA_CA_CERTS: given('ca.pem') } : {}),
    ...Object.fromEntries([
      config('userconfig', user),
      config('globalconfig', own),
      ...(addressOf(job, 'npm') ? [config('registry', addressOf(job, 'npm'))] : []),
      config('cache', join(work, 'cache')),
      config('logs_max', '0'),
      config('update_notifier', 'false'),
      config('fetch_timeout', String(silence)),
      config('fetch_retries', String(RETRIES)),
      config('fetch_retry_mintimeout', '1000'),
      config('fetch_retry_maxtimeout', '10000'),
      config('omit_lockfile_registry_resolved', 'true'),
    ]),
  }
}

async function uv({ job, silence, work, folder, proxy, bundle }) {
  const own = join(folder, 'uv.toml')
  const bypass = (proxy.no_proxy ?? []).map((name) => `"${name}"`).join(', ')
  const text = [
    ...lines([['http-proxy = ', proxy.http], ['https-proxy = ', proxy.https]]),
    bypass ? `no-proxy = [${bypass}]\n` : '',
    ...lines([['[[index]]\ndefault = true\nurl = ', addressOf(job, 'pypi')]]),
  ]
  await writeFile(own, text.join(''))
  return {
    UV_CONFIG_FILE: own,
    UV_CACHE_DIR: join(work, 'uv-cache'),
    UV_NO_PROGRESS: '1',
    UV_PYTHON_DOWNLOADS: 'never',
    UV_KEYRING_PROVIDER: 'disabled',
    UV_HTTP_TIMEOUT: String(Math.ceil(silence / 1000)),
    UV_HTTP_RETRIES: String(RETRIES),
    NETRC: given('netrc') || '/dev/null',
    ...(bundle ? { SSL_CERT_FILE: bundle } : {}),
  }
}

async function apt({ silence, folder, proxy, bundle }) {
  const own = join(folder, 'apt.conf')
  const none = join(folder, 'none')
  await mkdir(none, { recursive: true })
  const seconds = String(Math.ceil(silence / 1000))
  const text = lines([
    ['APT::Sandbox::User ', 'root', ';'], // the files of the job are root's alone
    ['Acquire::Retries ', String(RETRIES), ';'],
    ['Acquire::http::Timeout ', seconds, ';'],
    ['Acquire::https::Timeout ', seconds, ';'],
    ['Acquire::http::Proxy ', proxy.http || 'DIRECT', ';'],
    ['Acquire::https::Proxy ', proxy.https || 'DIRECT', ';'],
    ['Acquire::https::CAInfo ', bundle, ';'],
    ['Dir::Etc::Netrc ', given('apt-auth.conf') || '/dev/null', ';'],
    ['Dir::Etc::NetrcParts ', none, ';'],
  ])
  await writeFile(own, text.join(''))
  const bypass = (proxy.no_proxy ?? []).join(',')
  return { APT_CONFIG: own, DEBIAN_FRONTEND: 'noninteractive', ...(bypass ? { no_proxy: bypass } : {}) }
}

// Where the Debian packages are: the operator's own sources.list, else the address of the alias, else neither.
export const debianSources = (job) => ({ file: given('apt-sources.list'), address: addressOf(job, 'debian') })

// "user:password" for the registry of this pull, if the operator has one.
export const loginOf = async () => (given('login') ? readFile(given('login'), 'utf8') : '')

// The header that a request for this address needs, by the operator's netrc; never over a plain connection.
export async function netrcLogin(address) {
  const url = URL.parse(address)
  if (!given('netrc') || url?.protocol !== 'https:') return {}
  const words = (await readFile(given('netrc'), 'utf8')).replace(/^\s*#.*$/gm, '').split(/\s+/)
  const found = {}
  let here = false
  for (let at = 0; at < words.length; at += 1) {
    if (words[at] === 'machine') here = words[(at += 1)] === url.hostname
    else if (words[at] === 'default') here = !Object.keys(found).length
    else if (['login', 'password', 'account'].includes(words[at])) {
      const name = words[at]
      at += 1
      if (here) found[name] ??= words[at]
    }
  }
  if (!found.password) return {}
  const pair = `${found.login ?? ''}:${found.password}`
  return { authorization: `Basic ${Buffer.from(pair).toString('base64')}` }
}
