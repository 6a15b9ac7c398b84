// One service for schemathesis: its own process on an embedded PostgreSQL. It requires API keys.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { removeFolder } from '../../chaos/remove-folder.ts'
import { scopes } from '../../src/db/api-keys.ts'
import { freePort } from '../../src/embedded/port.ts'
import { tokens } from '../../src/domain/tokens.ts'

export interface Running {
  url: string
  key: string
  /** The callback token of the first delivery of the example task, which is already posted. */
  token: string
  /** Stops the service as an operator does, and returns its problems. Empty if all is well. */
  stop(): Promise<string[]>
}

const secret = 'a secret of the tests, long enough to be one'
const program = (name: string) => resolve(import.meta.dirname, '../../src', `${name}.js`)

export async function startService(): Promise<Running> {
  const dataDir = mkdtempSync(join(tmpdir(), 'ackbox-schemathesis-'))
  // Under root, PostgreSQL runs as another user, who needs access to this folder.
  chmodSync(dataDir, 0o755)
  const port = await freePort()
  const env = {
    PATH: process.env['PATH'],
    HOME: process.env['HOME'],
    DATA_DIR: join(dataDir, 'data'),
    PORT: String(port),
    AUTH: 'on',
    SECRET: secret
  }
  const child = spawn(process.execPath, [program('main')], { env, stdio: ['ignore', 'pipe', 'pipe'] })
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output += text))
  const ended = once(child, 'close') as Promise<[code: number | null]>
  const close = () => removeFolder(dataDir)
  process.once('exit', () => child.kill('SIGKILL'))

  for (let tries = 0; !/"msg":"ready"/.test(output); tries++) {
    if (child.exitCode !== null || tries > 600) {
      child.kill('SIGKILL')
      await ended
      await close()
      throw new Error(`the service did not start:\n${output}`)
    }
    await sleep(100)
  }
  const url = `http://127.0.0.1:${port}`
  const create = [program('cli/ackbox'), 'key', 'create', 'schemathesis', '--scopes', scopes.join()]
  const stdio: ['ignore', 'pipe', 'ignore'] = ['ignore', 'pipe', 'ignore']
  const key = execFileSync(process.execPath, create, { env, stdio }).toString().trim()
  const posted = await fetch(`${url}/tasks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
    body: JSON.stringify({
      taskNo: 'order-A-1001',
      messageCode: 'order.paid',
      messageBody: { orderId: 'A-1001', cents: 4200 }
    })
  })
  if (posted.status !== 201) {
    child.kill('SIGKILL')
    await ended
    await close()
    throw new Error(`the example task was answered ${posted.status}: ${await posted.text()}`)
  }
  const token = tokens({ current: secret }).issue({
    taskNo: 'order-A-1001',
    downstream: 'warehouse',
    attempt: 1,
    at: new Date()
  })
  return {
    url,
    key,
    token,
    async stop() {
      const wrong = output.split('\n').filter(line => /"api\.bug"|"crash"|this is a bug/.test(line))
      if (child.exitCode !== null || child.signalCode !== null) wrong.push('the service ended by itself')
      child.kill('SIGTERM')
      const [code] = await ended
      if (code !== 0) wrong.push(`the service ended with ${code}:\n${output.slice(-3_000)}`)
      await close()
      return wrong
    }
  }
}
