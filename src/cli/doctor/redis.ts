import type { Cluster, Redis } from 'ioredis'
import { redisClient } from '../../queue/redis-client.ts'

export interface RedisFacts {
  version: string
  roundTripMs: number
  evictionPolicy: string | undefined
  appendOnly: boolean
}

export async function lookAtRedis(url: string): Promise<RedisFacts> {
  return await ask(url, async redis => {
    const startedAt = performance.now()
    await redis.ping()
    const roundTripMs = performance.now() - startedAt
    const info = await redis.info()
    return {
      version: lineOf(info, 'redis_version') ?? 'unknown',
      roundTripMs,
      evictionPolicy: lineOf(info, 'maxmemory_policy'),
      appendOnly: lineOf(info, 'aof_enabled') === '1'
    }
  })
}

/** The `run_id` of a server. It is the same at each address of the server. */
export async function runIdOf(url: string): Promise<string | undefined> {
  return await ask(url, async redis => lineOf(await redis.info('server'), 'run_id'))
}

const lineOf = (info: string, name: string): string | undefined =>
  new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1]

async function ask<T>(url: string, read: (redis: Redis | Cluster) => Promise<T>): Promise<T> {
  let reason: Error | undefined
  const redis = redisClient(url, {
    limits: { bytes: 1_048_576, items: 4_096 },
    lazyConnect: true,
    connectTimeout: 3_000,
    commandTimeout: 3_000,
    retryStrategy: () => null
  })
  redis.on('error', err => (reason = err))
  try {
    await redis.connect()
    return await read(redis)
  } catch (err) {
    throw reason ?? err // connect() only reports the closed connection, the event has the reason
  } finally {
    redis.disconnect()
  }
}
