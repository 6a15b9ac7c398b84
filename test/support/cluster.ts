import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs'
import path from 'node:path'
import type { Test } from 'tap'
import { runPostmaster, stopPostmaster } from '../../src/embedded/postmaster.ts'
import { folder } from './service.ts'
import { dataRoot } from './memory.ts'

/** A DATA_DIR whose PostgreSQL has been made, as from a second start on: making one syncs a thousand files to the disk. */
export async function dataFolder(t: Test): Promise<string> {
  const dataDir = folder(t)
  copy(await made(), dataDir)
  return dataDir
}

/** Goes with the binaries that made it. */
const kept = path.resolve(import.meta.dirname, '../../../node_modules/.cache/test-cluster')

/** One for all test files: whoever comes first makes it. */
async function made(): Promise<string> {
  if (existsSync(kept)) return kept
  const dataDir = mkdtempSync(path.join(dataRoot, 'ackbox-test-cluster-'))
  // As root PostgreSQL runs as another user, who must get in.
  chmodSync(dataDir, 0o755)
  mkdirSync(path.dirname(kept), { recursive: true })
  const beside = mkdtempSync(`${kept}-`)
  try {
    const { pid } = await runPostmaster({ dataDir })
    await stopPostmaster({ pid, dataDir })
    // Copies that run at once would all ask for its port of last time.
    for (const name of ['port', 'postgres.log']) rmSync(path.join(dataDir, name), { force: true })
    copy(dataDir, beside)
    try {
      renameSync(beside, kept)
    } catch (err) {
      if (!existsSync(kept)) throw err
    }
  } finally {
    for (const one of [dataDir, beside]) rmSync(one, { recursive: true, force: true })
  }
  return kept
}

/** With the owners. */
export function copy(from: string, to: string): void {
  const { status, stderr } = spawnSync('cp', ['-a', `${from}/.`, to], { encoding: 'utf8' })
  if (status !== 0) throw new Error(`cp: ${stderr}`)
}
