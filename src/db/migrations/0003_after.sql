CREATE TABLE "dependency" (
	"task_id" uuid NOT NULL,
	"after_id" uuid NOT NULL,
	"done_at" timestamp with time zone,
	CONSTRAINT "dependency_pkey" PRIMARY KEY("task_id","after_id")
);
--> statement-breakpoint
ALTER TABLE "alarm" DROP CONSTRAINT "alarm_kind_check";--> statement-breakpoint
ALTER TABLE "delivery" DROP CONSTRAINT "delivery_phase_check";--> statement-breakpoint
ALTER TABLE "delivery" DROP CONSTRAINT "delivery_reason_check";--> statement-breakpoint
CREATE INDEX "dependency_after_idx" ON "dependency" USING btree ("after_id","task_id");--> statement-breakpoint
CREATE INDEX "dependency_open_idx" ON "dependency" USING btree ("task_id") WHERE "dependency"."done_at" is null;--> statement-breakpoint
-- by hand: NOT VALID, or the tables would be read under the lock that adding one takes
ALTER TABLE "alarm" ADD CONSTRAINT "alarm_kind_check" CHECK ("alarm"."kind" in ('FAILED', 'NO_HANDLER', 'BLOCKED_TARGET', 'TLS', 'REJECTED', 'DEPENDENCY_FAILED')) NOT VALID;--> statement-breakpoint
ALTER TABLE "delivery" ADD CONSTRAINT "delivery_phase_check" CHECK ("delivery"."phase" in ('WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT', 'BLOCKED')) NOT VALID;--> statement-breakpoint
ALTER TABLE "delivery" ADD CONSTRAINT "delivery_reason_check" CHECK ("delivery"."reason" in ('SEND_EXHAUSTED', 'RECEIPT_TIMEOUT', 'REFUSED', 'RECEIPT_FAILED', 'EXPIRED', 'SKIPPED', 'DELETED', 'DEPENDENCY_DELETED')) NOT VALID;--> statement-breakpoint
ALTER TABLE "alarm" VALIDATE CONSTRAINT "alarm_kind_check";--> statement-breakpoint
ALTER TABLE "delivery" VALIDATE CONSTRAINT "delivery_phase_check";--> statement-breakpoint
ALTER TABLE "delivery" VALIDATE CONSTRAINT "delivery_reason_check";
