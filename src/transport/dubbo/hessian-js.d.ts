/** The parts of hessian.js that we use. */
declare module 'hessian.js' {
  class EncoderV2 {
    write(value: unknown): void
    get(): Buffer
    _checkRef(object: unknown): boolean
  }
  class DecoderV2 {
    constructor(bytes: Buffer)
    byteBuffer: { get(at: number): number | undefined; position(): number; skip(bytes: number): void }
    read(): unknown
    readType(): string | undefined
    _addRef(object: unknown): unknown
    _readMap(map?: object): object
    _readObjectDefinition(): { name: string }
  }
}
