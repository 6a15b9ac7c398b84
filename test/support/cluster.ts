import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import type { Test } from 'tap'
import { runPostmaster, stopPostmaster } from '../../src/embedded/postmaster.ts'
import { folder } from './service.ts'
import { dataRoot } from './memory.ts'

/** A DATA_DIR with an initialized PostgreSQL, as at a second start: each initdb would sync a thousand files to the disk. */
export async function dataFolder(t: Test): Promise<string> {
  const dataDir = folder(t)
  copy(await made(), dataDir)
  return dataDir
}

/** The template cluster. It is in node_modules, so that it is removed together with the binaries that made it. */
const kept = path.resolve(import.meta.dirname, '../../../node_modules/.cache/test-cluster')

/** The template for all test files. The first caller makes it. */
async function made(): Promise<string> {
  if (existsSync(kept)) return kept
  const dataDir = mkdtempSync(path.join(dataRoot, 'ackbox-test-cluster-'))
  // When root runs the tests, PostgreSQL runs as another user, which needs access.
  chmodSync(dataDir, 0o755)
  mkdirSync(path.dirname(kept), { recursive: true })
  const beside = mkdtempSync(`${kept}-`)
  try {
    const { pid } = await runPostmaster({ dataDir })
    await stopPostmaster({ pid, dataDir })
    // Without its last port: copies that run at the same time would all try to use it.
    for (const name of ['port', 'postgres.log']) rmSync(path.join(dataDir, name), { force: true })
    copy(dataDir, beside)
    try {
      renameSync(beside, kept)
    } catch (err) {
      if (!existsSync(kept)) throw err
    }
  } finally {
    for (const dir of [dataDir, beside]) rmSync(dir, { recursive: true, force: true })
  }
  return kept
}

/** Keeps the owners of the files. */
export function copy(from: string, to: string): void {
  const { status, stderr } = spawnSync('cp', ['-a', `${from}/.`, to], { encoding: 'utf8' })
  if (status !== 0) throw new Error(`cp: ${stderr}`)
}
