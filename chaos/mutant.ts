// A mutant is a service that is broken on purpose: in a copy, one text of one compiled file is replaced, and src stays as it is. Each
// mutant names the charge that it must cause, and the faults that expose it soonest.
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Charge } from './judge/finding.ts'
import type { Action } from './nemesis-plan.ts'
import type { Profile } from './options.ts'

/** The replacement of one text in one file below dist/. */
export interface Change {
  file: string
  from: string
  to: string
}

export interface Mutant extends Change {
  description: string
  /** Further changes that remove safeguards, which would hide the mutant. */
  also?: readonly Change[]
  /** The verdict must be red with this charge. */
  expects: Charge
  only: Action[]
  /** The fault is on the producers' side, and shows in that profile. */
  isOfProducers?: true
  /** The fault is on the receivers' side. */
  isOfReceivers?: true
  /** It shows without any kill. */
  isCalm?: true
  /** Overrides fields of mutantProfile. */
  profile?: Partial<Profile>
  /** It shows only if the clock of workers and dispatchers differs from the database's. */
  aheadSeconds?: number
}

/** The mutated text. Throws unless `from` occurs exactly once, because the mutant then no longer fits the code. */
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
 * Copies the files of the service into `folder`, so that a build during the run cannot change them, and applies the
 * mutant, if any. Returns the copy of dist/.
 */
export function copyService(root: string, folder: string, mutant?: Mutant): string {
  const copy = join(folder, 'service')
  mkdirSync(copy)
  return copyChanged(root, copy, ['dist/chaos'], mutant ? [mutant, ...(mutant.also ?? [])] : [])
}

/** Copies the service, and the parts of dist/ that start it, into an empty folder, and applies the changes. Returns the copy of dist/. */
export function copyChanged(
  root: string,
  copy: string,
  starters: readonly string[],
  changes: readonly Change[]
): string {
  for (const part of ['package.json', 'src/db/migrations', 'dist/src', ...starters])
    cpSync(join(root, part), join(copy, part), { recursive: true })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  const dist = join(copy, 'dist')
  for (const one of changes) writeFileSync(join(dist, one.file), mutated(one, dist))
  return dist
}
