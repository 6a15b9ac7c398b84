export { default } from '../long/plain.ts'
