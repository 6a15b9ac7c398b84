export { default } from '../patient/receipt.ts'
