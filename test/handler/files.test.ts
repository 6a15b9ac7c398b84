import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import type * as files from '../../src/handler/files.ts'

type Files = typeof files

t.test(
  'a handler that was deleted does not come back to life from what the compiler left behind',
  async t => {
    const root = mkdtempSync(join(tmpdir(), 'project-'))
    t.teardown(() => rmSync(root, { recursive: true }))
    for (const folder of ['handlers', 'dist/handlers', 'dist/src/handler', 'dist/src/runtime'])
      mkdirSync(join(root, folder), { recursive: true })
    writeFileSync(join(root, 'package.json'), '{ "type": "module" }')
    writeFileSync(join(root, 'handlers/kept.ts'), '')
    for (const name of ['kept.js', 'kept.js.map', 'kept.d.ts', 'deleted.js'])
      writeFileSync(join(root, 'dist/handlers', name), '')
    // The module finds the project by its own path, so it must be inside that project.
    for (const file of ['handler/files.js', 'runtime/package.js'])
      copyFileSync(join(import.meta.dirname, '../../src', file), join(root, 'dist/src', file))
    const copy = join(root, 'dist/src/handler/files.js')
    const { builtInHandlers, handlerFiles } = (await import(pathToFileURL(copy).href)) as Files

    t.equal(builtInHandlers, join(root, 'dist/handlers'))
    t.same(handlerFiles(builtInHandlers), [{ path: join(root, 'dist/handlers/kept.js'), name: 'kept.ts' }])

    rmSync(join(root, 'handlers'), { recursive: true })
    t.equal(
      handlerFiles(builtInHandlers)?.length,
      2,
      'an image that holds no sources takes what was compiled'
    )
  }
)
