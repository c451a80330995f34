// Writes one tar to standard output, member by member.

import { createReadStream } from 'node:fs'

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

async function put(chunk) {
  if (!process.stdout.write(chunk)) await new Promise((resolve) => process.stdout.once('drain', resolve))
}

const padding = (size) => Buffer.alloc((512 - (size % 512)) % 512)

export async function putBytes(name, bytes) {
  await put(Buffer.concat([header(name, bytes.length), bytes, padding(bytes.length)]))
}

export async function putFile(name, file) {
  await put(header(name, file.size))
  for await (const chunk of createReadStream(file.path)) await put(chunk)
  await put(padding(file.size))
}

export async function end() {
  await put(Buffer.alloc(1024))
}
