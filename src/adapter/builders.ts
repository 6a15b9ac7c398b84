// Query builders and ORMs. No library is imported: each function checks the handle for the members that it uses.
import { wrongHandle } from './drivers.ts'
import {
  AdapterError,
  alreadyInside,
  type Database,
  type Dialect,
  type Row,
  type Tx,
  type Value
} from './transaction.ts'

/** The handle that a library's `transaction(work)` passes to the work, or the given handle itself. */
export type Native<From> = From extends {
  transaction(work: (native: infer Inner) => Promise<unknown>, ...more: never[]): unknown
}
  ? Inner
  : From
export type KyselyNative<From> = From extends {
  transaction(): { execute(work: (native: infer Inner) => Promise<unknown>): unknown }
}
  ? Inner
  : From
export type TypeormNative<From> = From extends {
  transaction: {
    (work: (native: infer Inner) => Promise<unknown>): unknown
    (isolation: never, work: never): unknown
  }
}
  ? Inner
  : From
export type PrismaNative<From> = From extends {
  $transaction(work: (native: infer Inner) => Promise<unknown>, ...more: never[]): unknown
}
  ? Inner
  : From

interface Knex {
  raw(text: string, values: readonly Value[]): Promise<unknown>
  transaction<Result>(work: (trx: Knex) => Promise<Result>): Promise<Result>
  isTransaction?: boolean
  client?: { dialect?: string }
}

/** For knex, on PostgreSQL or MySQL: pass its `trx`, or the knex itself where a database is needed. */
export function fromKnex<From extends object>(from: From, dialect?: Dialect): Database<Native<From>> {
  return database<Knex, Native<From>>(from, {
    name: 'fromKnex',
    wanted: 'a knex or its trx',
    fits: knex => typeof knex.raw === 'function',
    dialect: knex => dialect ?? dialectOf('fromKnex', knex.client?.dialect),
    isTransaction: knex => knex.isTransaction === true,
    // Knex uses question marks for every database, and each takes the next value. A statement may name a value twice.
    query(knex, text, values) {
      const marks = text.match(/\$\d+/g)
      return knex.raw(
        text.replaceAll(/\$\d+/g, '?'),
        marks ? marks.map(mark => values[Number(mark.slice(1)) - 1] ?? null) : values
      )
    },
    begin: (knex, work) => knex.transaction(work)
  })
}

interface Kysely {
  isTransaction?: boolean
  executeQuery(query: unknown): Promise<{ rows: Row[] }>
  transaction(): { execute<Result>(work: (trx: Kysely) => Promise<Result>): Promise<Result> }
  getExecutor(): { adapter: { supportsReturning: boolean; supportsTransactionalDdl: boolean } }
}

/** For kysely, on PostgreSQL or MySQL: pass its `trx`, or the kysely itself where a database is needed. */
export function fromKysely<From extends object>(from: From, dialect?: Dialect): Database<KyselyNative<From>> {
  return database<Kysely, KyselyNative<From>>(from, {
    name: 'fromKysely',
    wanted: 'a Kysely or its trx',
    fits: kysely => typeof kysely.executeQuery === 'function',
    dialect(kysely) {
      if (dialect) return dialect
      const { supportsReturning, supportsTransactionalDdl } = kysely.getExecutor().adapter
      if (supportsReturning === supportsTransactionalDdl) return supportsReturning ? 'postgres' : 'mysql'
      return dialectOf('fromKysely', undefined)
    },
    isTransaction: kysely => kysely.isTransaction === true,
    query: (kysely, sql, parameters) =>
      kysely.executeQuery({
        sql,
        parameters,
        query: { kind: 'RawNode', sqlFragments: [sql], parameters: [] },
        queryId: { queryId: 'ackbox' }
      }),
    begin: (kysely, work) => kysely.transaction().execute(work)
  })
}

interface Drizzle {
  execute(query: unknown): PromiseLike<unknown>
  transaction<Result>(work: (tx: Drizzle) => Promise<Result>): Promise<Result>
  rollback?(): never
  dialect?: object
}
// Drizzle marks its classes with this symbol, for its own function `is`.
const entityKind = Symbol.for('drizzle:entityKind')

/** For drizzle, on PostgreSQL or MySQL with any driver: pass its `tx`, or the db itself where a database is needed. */
export function fromDrizzle<From extends object>(from: From, dialect?: Dialect): Database<Native<From>> {
  return database<Drizzle, Native<From>>(from, {
    name: 'fromDrizzle',
    wanted: 'a db of drizzle or its tx',
    fits: db => typeof db.execute === 'function',
    dialect(db) {
      const made = db.dialect?.constructor as { [entityKind]?: string } | undefined
      return dialect ?? dialectOf('fromDrizzle', made?.[entityKind])
    },
    isTransaction: db => typeof db.rollback === 'function',
    // An object with getSQL. Drizzle needs no other member of a query.
    query: (db, sql, params) =>
      db.execute({ getSQL: () => ({ toQuery: () => ({ sql, params: [...params] }) }) }),
    begin: (db, work) => db.transaction(work)
  })
}

interface Prisma {
  $queryRawUnsafe(text: string, ...values: Value[]): Promise<unknown>
  $executeRawUnsafe(text: string, ...values: Value[]): Promise<unknown>
  $transaction<Result>(work: (tx: Prisma) => Promise<Result>, limits: PrismaLimits): Promise<Result>
  $connect?(): Promise<void>
  _activeProvider?: string
}

/** Limits in milliseconds of a transaction that Ackbox begins: for the work, and for a free connection. */
export interface PrismaLimits {
  timeout?: number
  maxWait?: number
}

/**
 * For Prisma, on PostgreSQL or MySQL: pass the `tx` of an interactive transaction, or the client where a database is needed. Prisma's own
 * limit for the work, 5 s, is shorter than a receiver may take, so the default is 60 s here, and 10 s for a connection.
 */
export function fromPrisma<From extends object>(
  from: From,
  dialect?: Dialect,
  limits: PrismaLimits = {}
): Database<PrismaNative<From>> {
  return database<Prisma, PrismaNative<From>>(from, {
    name: 'fromPrisma',
    wanted: 'a Prisma client or its tx',
    fits: prisma => typeof prisma.$queryRawUnsafe === 'function',
    dialect: prisma => dialect ?? dialectOf('fromPrisma', prisma._activeProvider),
    isTransaction: prisma => typeof prisma.$connect !== 'function',
    query: (prisma, text, values) =>
      /^select|\breturning\b/.test(text)
        ? prisma.$queryRawUnsafe(text, ...values)
        : prisma.$executeRawUnsafe(text, ...values),
    begin: (prisma, work) => prisma.$transaction(work, { timeout: 60_000, maxWait: 10_000, ...limits })
  })
}

interface Typeorm {
  query(text: string, values: readonly Value[]): Promise<unknown>
  transaction<Result>(work: (manager: Typeorm) => Promise<Result>): Promise<Result>
  queryRunner?: { isTransactionActive: boolean }
  isTransactionActive?: boolean
  /** The name since TypeORM 1. */
  dataSource?: { options: { type: string } }
  connection?: { options: { type: string } }
  options?: { type: string }
}

/** For TypeORM, on PostgreSQL or MySQL: pass a transaction's manager, a query runner, or a DataSource where a database is needed. */
export function fromTypeorm<From extends object>(
  from: From,
  dialect?: Dialect
): Database<TypeormNative<From>> {
  return database<Typeorm, TypeormNative<From>>(from, {
    name: 'fromTypeorm',
    wanted: 'an EntityManager, a QueryRunner or a DataSource',
    fits: typeorm => typeof typeorm.query === 'function',
    dialect: typeorm =>
      dialect ??
      dialectOf('fromTypeorm', (typeorm.dataSource ?? typeorm.connection ?? typeorm).options?.type),
    isTransaction: ({ queryRunner, isTransactionActive }) =>
      (queryRunner?.isTransactionActive ?? isTransactionActive) === true,
    query: (typeorm, text, values) => typeorm.query(text, [...values]),
    begin: (typeorm, work) => typeorm.transaction(work)
  })
}

interface Library<Handle> {
  name: string
  wanted: string
  fits(handle: Handle): boolean
  dialect(handle: Handle): Dialect
  isTransaction(handle: Handle): boolean
  query(handle: Handle, text: string, values: readonly Value[]): PromiseLike<unknown>
  begin<Result>(handle: Handle, work: (native: Handle) => Promise<Result>): Promise<Result>
}

/** The only cast of a library's handle, followed by a check of its members. */
function database<Handle, Inner>(from: object, library: Library<Handle>): Database<Inner> {
  const handle = from as Handle
  if (!library.fits(handle)) throw wrongHandle(library.name, library.wanted)
  const dialect = library.dialect(handle)
  const within = (native: Handle): Tx => ({
    dialect,
    query: async (text, values) => rowsOf(await library.query(native, text, values)),
    ...(library.isTransaction(native) ? {} : { refusal: `What ${library.name} was given is no transaction` })
  })
  const requireOutside = async (): Promise<void> => {
    if (library.isTransaction(handle)) throw alreadyInside(library.name)
  }
  return {
    ...within(handle),
    within: native => within(native as unknown as Handle),
    requireOutside,
    async begin(work) {
      // The library would set a savepoint.
      await requireOutside()
      return await library.begin(handle, native => work(native as unknown as Inner))
    }
  }
}

/** The rows in the result of a driver: an array, `{ rows }`, or `[rows, fields]`. */
function rowsOf(result: unknown): readonly Row[] {
  if (Array.isArray(result)) return (Array.isArray(result[0]) ? result[0] : result) as Row[]
  const { rows } = (typeof result === 'object' && result !== null ? result : {}) as { rows?: Row[] }
  return rows ?? []
}

function dialectOf(name: string, driver: string | undefined): Dialect {
  if (driver !== undefined && /^(?:pg|postgres|aurora-postgres)/i.test(driver)) return 'postgres'
  if (driver !== undefined && /^(?:mysql|mariadb|aurora-mysql)/i.test(driver)) return 'mysql'
  throw new AdapterError(
    `${name} cannot detect the database${driver === undefined ? '' : ` from '${driver}'`}: call ${name}(tx, 'postgres') or ${name}(tx, 'mysql').`
  )
}
