// Several Redis servers that elect a master: Sentinels with a replica, and a cluster of six nodes.
import { execFile, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { promisify } from 'node:util'
import { Redis } from 'ioredis'
import type { Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { ownRedis, type OwnRedis } from './redis.ts'
import { folder } from './service.ts'
import { until } from './until.ts'

export interface RedisGroup {
  url: string
  /** kill -9 of the master that holds this key. Resolves when another server is the master for it. */
  killMaster(key: string): Promise<void>
}

const run = promisify(execFile)

async function ask<T>({ port }: { port: number }, question: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(port, '127.0.0.1')
  redis.on('error', () => {})
  try {
    return await question(redis)
  } finally {
    redis.disconnect()
  }
}

/** A master, its replica, and three Sentinels with a quorum of two. Undefined: there is no redis-server. */
export async function sentinels(t: Test): Promise<RedisGroup | undefined> {
  const master = await ownRedis(t)
  if (!master) return undefined
  const replica = await ownRedis(t, '--replicaof', '127.0.0.1', String(master.port))
  if (!replica) return undefined
  await until('the replica follows', () =>
    ask(replica, async redis => (await redis.info('replication')).includes('master_link_status:up'))
  )
  const watching = await Promise.all([1, 2, 3].map(() => sentinel(t, master.port)))
  const [first] = watching
  if (!first) return undefined
  await until('the Sentinels know each other and the replica', () =>
    ask(first, async redis => {
      const [known] = (await redis.call('sentinel', 'masters')) as string[][]
      const of = (name: string) => known?.[known.indexOf(name) + 1]
      return of('num-other-sentinels') === '2' && of('num-slaves') === '1'
    })
  )
  return {
    url: `redis+sentinel://${watching.map(one => `127.0.0.1:${one.port}`).join(',')}/orders`,
    async killMaster() {
      await master.kill()
      await until('the replica is the master', () =>
        ask(first, async redis => {
          const answer = (await redis.call('sentinel', 'get-master-addr-by-name', 'orders')) as string[]
          return answer[1] === String(replica.port)
        })
      )
    }
  }
}

async function sentinel(t: Test, masterPort: number): Promise<{ port: number }> {
  const port = await freePort()
  const dir = folder(t)
  // A Sentinel rewrites its configuration file.
  const file = path.join(dir, 'sentinel.conf')
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${dir}`,
    `sentinel monitor orders 127.0.0.1 ${masterPort} 2`,
    'sentinel down-after-milliseconds orders 1000',
    'sentinel failover-timeout orders 5000'
  ]
  writeFileSync(file, `${lines.join('\n')}\n`)
  const child = spawn('redis-server', [file, '--sentinel'], { stdio: 'ignore' })
  t.teardown(() => child.kill('SIGKILL'))
  await until('the Sentinel answers', () => ask({ port }, async redis => (await redis.ping()) === 'PONG'))
  return { port }
}

/** Three masters with a replica each. Undefined: there is no redis-server. */
export async function cluster(t: Test): Promise<RedisGroup | undefined> {
  const nodes: OwnRedis[] = []
  for (let i = 0; i < 6; i++) {
    const node = await ownRedis(
      t,
      '--cluster-enabled',
      'yes',
      '--cluster-node-timeout',
      '2000',
      '--cluster-port',
      String(await freePort())
    )
    if (!node) return undefined
    nodes.push(node)
  }
  const places = nodes.map(node => `127.0.0.1:${node.port}`)
  await run('redis-cli', ['--cluster', 'create', ...places, '--cluster-replicas', '1', '--cluster-yes'])
  const masterOf = async (key: string, node: OwnRedis): Promise<number | undefined> =>
    await ask(node, async redis => {
      const slot = await redis.cluster('KEYSLOT', key)
      const ranges = (await redis.cluster('SLOTS')) as unknown as [number, number, [string, number]][]
      return ranges.find(([from, to]) => from <= slot && slot <= to)?.[2][1]
    })
  for (const node of nodes)
    await until('every node sees the whole cluster', () =>
      ask(node, async redis => {
        const info = await redis.cluster('INFO')
        return (
          info.includes('cluster_state:ok') &&
          ((await redis.cluster('SLOTS')) as unknown[][]).every(range => range.length > 3)
        )
      })
    )
  return {
    url: `redis://${places.join(',')}`,
    async killMaster(key) {
      const [first] = nodes
      const port = first && (await masterOf(key, first))
      const master = nodes.find(node => node.port === port)
      const other = nodes.find(node => node.port !== port)
      if (!master || !other) throw new Error(`no node holds ${key}`)
      await master.kill()
      await until('a replica is the master', async () => (await masterOf(key, other)) !== port)
    }
  }
}
