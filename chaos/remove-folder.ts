import { rmSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const waitMs = 100
const mostTries = 600

/**
 * Removes a folder in which a process may still be writing: an embedded PostgreSQL outlives its killed service for a moment. The option
 * `maxRetries` of rmSync does not help: it lists a folder once, and fails each time if a file has come since.
 */
export async function removeFolder(folder: string): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return rmSync(folder, { recursive: true, force: true })
    } catch (err) {
      if (tries === mostTries) throw err
    }
    await sleep(waitMs)
  }
}
