// A Prisma client for a schema without models, made from the output of `prisma generate` 7.10. The generator downloads a binary;
// the client itself needs none.
import { PrismaPg } from '@prisma/adapter-pg'
import { getPrismaClient, type GetPrismaClientConfig } from '@prisma/client/runtime/client'

const compiler = '@prisma/client/runtime/query_compiler_fast_bg.postgresql'
/** These modules have no types, and neither has WebAssembly in a program without the DOM library. */
const untyped = async (name: string): Promise<unknown> => await import(name)
type Compiler = Awaited<ReturnType<NonNullable<GetPrismaClientConfig['compilerWasm']>['getRuntime']>>

const config: GetPrismaClientConfig = {
  previewFeatures: [],
  clientVersion: '7.10.0',
  engineVersion: '0edf323efd1d98336f3f0a68684b56f689b900d3',
  activeProvider: 'postgresql',
  inlineSchema:
    'generator client {\n  provider = "prisma-client"\n}\n\ndatasource db {\n  provider = "postgresql"\n}\n',
  runtimeDataModel: { models: {}, enums: {}, types: {} },
  parameterizationSchema: { strings: [], graph: 'AAAA' },
  compilerWasm: {
    getRuntime: async () => (await untyped(`${compiler}.mjs`)) as Compiler,
    getQueryCompilerWasmModule: async () => {
      const { wasm } = (await untyped(`${compiler}.wasm-base64.mjs`)) as { wasm: string }
      const { Module } = (
        globalThis as unknown as { WebAssembly: { Module: new (code: Uint8Array) => object } }
      ).WebAssembly
      return new Module(Buffer.from(wasm, 'base64'))
    },
    importName: './query_compiler_fast_bg.js'
  }
}

/** The members that every generated client has. */
export interface PrismaTx {
  $queryRawUnsafe<Rows>(text: string, ...values: unknown[]): Promise<Rows>
  $executeRawUnsafe(text: string, ...values: unknown[]): Promise<number>
}
export interface Prisma extends PrismaTx {
  $transaction<Result>(work: (tx: PrismaTx) => Promise<Result>): Promise<Result>
  $disconnect(): Promise<void>
}

export function prismaClient(connectionString: string): Prisma {
  const Client = getPrismaClient(config) as unknown as new (options: { adapter: PrismaPg }) => Prisma
  return new Client({ adapter: new PrismaPg({ connectionString }) })
}
