// Writes one tar to standard output, member by member, and ends it with result.json whatever happens.

import { createReadStream } from 'node:fs'

let inMember = false // part of a file is written: nothing else can follow

function header(name, size) {
  const block = Buffer.alloc(512)
  block.write(name, 0, 100)
  block.write('0000644\0' + '0000000\0' + '0000000\0', 100)
  block.write(size.toString(8).padStart(11, '0') + '\0', 124)
  block.write('00000000000\0' + '        ' + '0', 136)
  block.write('ustar\0' + '00', 257)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(sum.toString(8).padStart(6, '0') + '\0 ', 148)
  return block
}

// Each piece is waited for until it has left: what comes after it may be the end of this process.
const put = (chunk) =>
  new Promise((resolve, reject) => {
    process.stdout.write(chunk, (error) => (error ? reject(error) : resolve()))
  })

const padding = (size) => Buffer.alloc((512 - (size % 512)) % 512)

export async function putBytes(name, bytes) {
  await put(Buffer.concat([header(name, bytes.length), bytes, padding(bytes.length)]))
}

export async function putFile(name, file) {
  inMember = true
  await put(header(name, file.size))
  for await (const chunk of createReadStream(file.path)) await put(chunk)
  await put(padding(file.size))
  inMember = false
}

const codeOf = (error) => String(error?.code ?? error?.name ?? 'EUNKNOWN').slice(0, 100)

// Does the work, which adds to ``result``, and ends this process. Its failure is written into ``result`` by
// ``describe``, also one that nobody waited for (a library that throws in an event). Only in the middle of a
// file is that impossible: then the last line on standard error says it, and the exit code is 1.
export async function conclude(result, work, describe = (error) => ({ code: codeOf(error) })) {
  const stray = new Promise((_, reject) => {
    for (const event of ['uncaughtException', 'unhandledRejection']) process.on(event, reject)
  })
  process.stderr.on('error', () => {})
  process.stdout.on('error', () => process.exit(1)) // nobody reads any more
  try {
    await Promise.race([work(), stray])
  } catch (error) {
    result.error = { code: codeOf(error), item: '', spec: '', ...describe(error) }
  }
  if (inMember) {
    process.stderr.write(`Error: ${result.error?.code ?? 'EUNKNOWN'} in the middle of a file\n`, () => process.exit(1))
    return
  }
  await putBytes('result.json', Buffer.from(JSON.stringify(result)))
  await put(Buffer.alloc(1024))
  process.exit(0)
}
