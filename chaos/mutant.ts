// A service that is broken on purpose is one text in one compiled file, replaced in a copy; src holds nothing of it. Each says which charge it
// must bring, and which faults bring it to light soonest.
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Charge } from './judge/finding.ts'
import type { Action } from './nemesis-plan.ts'
import type { Profile } from './options.ts'

/** One text in one file below dist/. */
export interface Change {
  file: string
  from: string
  to: string
}

export interface Mutant extends Change {
  what: string
  /** What would keep it from showing, taken away. */
  also?: readonly Change[]
  /** Red is not enough: it must be red for this. */
  expects: Charge
  only: Action[]
  /** It is of the producers' end, and shows in that profile. */
  isOfProducers?: true
  /** It is of the receivers' end. */
  isOfReceivers?: true
  /** It shows by itself: nothing is killed. */
  isCalm?: true
  /** Instead of mutantProfile's. */
  profile?: Partial<Profile>
  /** It shows only where workers and dispatchers have another clock than the database. */
  aheadSeconds?: number
}

/** The mutated text; a place that is not there exactly once means that the mutant no longer breaks what it says. */
export function mutated({ file, from, to }: Change, dist: string): string {
  const parts = readFileSync(join(dist, file), 'utf8').split(from)
  const [before, after] = parts
  if (before === undefined || after === undefined || parts.length > 2)
    throw new Error(
      `${file} holds the text of its mutant ${parts.length - 1} times instead of once:\n${from}`
    )
  return before + to + after
}

/**
 * Copies what a process of the service needs into `folder`, so that nothing that is built meanwhile mixes with it, and
 * breaks it if told to. Returns the copy of dist/.
 */
export function copyService(root: string, folder: string, mutant?: Mutant): string {
  const copy = join(folder, 'service')
  mkdirSync(copy)
  return copyChanged(root, copy, 'dist/chaos', mutant ? [mutant, ...(mutant.also ?? [])] : [])
}

/** Copies the service, and the part of dist/ that starts it, into an empty folder, and makes the changes there. Returns the copy of dist/. */
export function copyChanged(root: string, copy: string, starter: string, changes: readonly Change[]): string {
  for (const part of ['package.json', 'src/db/migrations', 'dist/src', starter])
    cpSync(join(root, part), join(copy, part), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  const dist = join(copy, 'dist')
  for (const one of changes) writeFileSync(join(dist, one.file), mutated(one, dist))
  return dist
}
