ALTER TABLE "delivery" ADD COLUMN "updated_by" text;--> statement-breakpoint
ALTER TABLE "task" ADD COLUMN "biz_type" text;--> statement-breakpoint
ALTER TABLE "task" ADD COLUMN "biz_key" text;--> statement-breakpoint
ALTER TABLE "task" ADD COLUMN "unique_biz" boolean;--> statement-breakpoint
CREATE INDEX "task_biz_idx" ON "task" USING btree ("biz_type","biz_key","id") WHERE "task"."biz_type" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX "task_unique_biz_key" ON "task" USING btree ("message_code","biz_type","biz_key") WHERE "task"."unique_biz";