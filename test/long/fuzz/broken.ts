// A subject that is broken on purpose: each way of it is one thing that the fuzzer must find.
import { createHash } from 'node:crypto'
import { connect } from 'node:net'
import type { Subject } from '../../../fuzz/child.ts'
import type { Played } from '../../../fuzz/conversation.ts'

const leaked: Buffer[] = []

/** What it does when a byte from 0xf0 on is said to it. */
const ways = {
  nothing: () => 'fine',
  exit: () => process.exit(3),
  uncaught: () => new Promise(resolve => setTimeout(() => resolve(explode()), 1)),
  print: () => process.stdout.write('a library says hello\n'),
  leak: () => leaked.push(Buffer.alloc(100 << 20, 1)),
  flood: () => Buffer.alloc(200 << 20, 1).length,
  block: () => {
    for (const began = process.cpuUsage(); process.cpuUsage(began).user < 400_000;)
      createHash('sha1').digest()
  },
  unsettled: () => new Promise(() => {}),
  rejected: () => Promise.reject(new Error('what the world does must be an outcome')),
  wrong: () => 'nonsense'
} satisfies Record<string, () => unknown>

function explode(): void {
  setTimeout(() => {
    throw new Error('nobody catches this')
  }, 1)
}

export type Way = keyof typeof ways

export const subject: Subject<{ way: Way }, Played> = async ({ way }) => ({
  async play({ port }, within) {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    let isBroken = false
    socket.on('data', data => {
      isBroken ||= data.some(byte => byte >= 0xf0)
    })
    socket.write('hello\n')
    const over = setTimeout(() => socket.destroy(), 200)
    await new Promise(resolve => socket.once('close', resolve))
    clearTimeout(over)
    return isBroken ? within('send', 100, Promise.resolve(ways[way]())) : 'fine'
  }
})
