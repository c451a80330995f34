// Runs a client (npm, uv, apt) to its end, or to a limit: none of them bounds how long a registry may take.

import { spawn } from 'node:child_process'

export const SILENCE = 60_000 // milliseconds; a job may say another number
const STEPS = 10 // times the silence: for one call of a client that says nothing of its progress
const MAX_OUTPUT = 64 * 1024 * 1024
const MAX_SAID = 1024 * 1024

const running = new Set()

// {status, stdout, stderr, code}: ``code`` is of what kept it from ending by itself, else empty. Its standard
// error may hold a credential: it is for finding out what failed, and never passed on.
export function runClient(command, args, { cwd, env, input = '', silence = SILENCE }) {
  return new Promise((resolve) => {
    // A group of its own: a client's own children end with it.
    const child = spawn(command, args, { cwd, env, detached: true, stdio: ['pipe', 'pipe', 'pipe'] })
    const kept = { stdout: [], stderr: [] }
    const sizes = { stdout: 0, stderr: 0 }
    let code = ''
    const end = (why) => {
      code ||= why
      try {
        process.kill(-child.pid, 'SIGKILL')
      } catch {
        // it has ended
      }
    }
    const timer = setTimeout(() => end('ETIMEDOUT'), silence * STEPS)
    const take = (name, most, why) => (chunk) => {
      sizes[name] += chunk.length
      if (sizes[name] <= most) kept[name].push(chunk)
      else if (why) end(why)
    }
    running.add(end)
    child.stdin.on('error', () => {}) // it reads no more: its exit code says whether that is fine
    child.stdin.end(input)
    child.stdout.on('data', take('stdout', MAX_OUTPUT, 'EBADOUTPUT'))
    child.stderr.on('data', take('stderr', MAX_SAID, ''))
    child.on('error', (error) => (code ||= String(error.code ?? 'ESPAWN')))
    child.on('close', (status) => {
      clearTimeout(timer)
      running.delete(end)
      resolve({
        status: status ?? 1,
        stdout: Buffer.concat(kept.stdout).toString(),
        stderr: Buffer.concat(kept.stderr).toString(),
        code,
      })
    })
  })
}

// Ends every client that runs now.
export function endClients(why) {
  for (const end of running) end(why)
}

// The first address that a client's words are about, to ask it once more ourselves; it may hold a credential.
export const addressIn = (words) => /https?:\/\/[^\s'"<>()`]+/.exec(words)?.[0] ?? ''
