import type { Consume } from './reply.ts'

export const consume: Consume = () => Promise.reject(new Error('not built yet'))
