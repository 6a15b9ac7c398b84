import { existsSync, statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'

const memory = '/dev/shm'
const leastBytes = 4 * 2 ** 30

/** The folder for databases of tests: in memory if there is room. On a disk their files take a tenth of the run's CPU. */
export const dataRoot = hasRoom() ? memory : tmpdir()

function hasRoom(): boolean {
  if (!existsSync(memory)) return false
  const { bavail, bsize } = statfsSync(memory)
  return bavail * bsize >= leastBytes
}
