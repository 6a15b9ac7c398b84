// The version after this one: the same program under another number, and one migration more that only adds.
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Test } from 'tap'
import { folder } from '../../support/service.ts'

const built = path.resolve(import.meta.dirname, '../../..')
export const project = path.dirname(built)

const additions = [
  `alter table "delivery" add column "note" text`,
  `alter table "task" add column "shard" integer default 0 not null`,
  `create table "extra" ("id" bigserial primary key not null, "task_id" uuid not null)`,
  `create index "task_shard_idx" on "task" using btree ("shard") where "shard" <> 0`
]

/** A folder of our migrations and one more. */
export function nextMigrations(t: Test, into = path.join(folder(t), 'migrations')): string {
  cpSync(path.join(project, 'src/db/migrations'), into, { recursive: true })
  const file = path.join(into, 'meta/_journal.json')
  const journal = JSON.parse(readFileSync(file, 'utf8')) as { entries: { idx: number; when: number }[] }
  const idx = journal.entries.length
  const when = Math.max(...journal.entries.map(entry => entry.when)) + 60_000
  const entry = { idx, version: '7', when, tag: '9999_next', breakpoints: true }
  writeFileSync(file, JSON.stringify({ ...journal, entries: [...journal.entries, entry] }))
  writeFileSync(path.join(into, '9999_next.sql'), additions.join(';\n--> statement-breakpoint\n'))
  return into
}

export interface Release {
  main: string
  /** Of all commands. */
  program: string
  handlersDir: string
}

/** All of it in a folder of its own, as it would be installed. */
export function nextRelease(t: Test, version: string): Release {
  const at = folder(t)
  cpSync(built, path.join(at, 'dist'), { recursive: true })
  nextMigrations(t, path.join(at, 'src/db/migrations'))
  const own = JSON.parse(readFileSync(path.join(project, 'package.json'), 'utf8')) as object
  writeFileSync(path.join(at, 'package.json'), JSON.stringify({ ...own, version }))
  symlinkSync(path.join(project, 'node_modules'), path.join(at, 'node_modules'))
  mkdirSync(path.join(at, 'handlers'), { recursive: true })
  return {
    main: path.join(at, 'dist/src/main.js'),
    program: path.join(at, 'dist/src/cli/ackbox.js'),
    handlersDir: path.join(at, 'dist/test/support/handlers')
  }
}
