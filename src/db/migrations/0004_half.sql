CREATE TABLE "prepared" (
	"task_id" uuid PRIMARY KEY NOT NULL,
	"message_code" text NOT NULL,
	"next_action_at" timestamp with time zone,
	"leased_until" timestamp with time zone,
	"checks" integer DEFAULT 0 NOT NULL,
	"answered" integer DEFAULT 0 NOT NULL,
	"unanswered" integer DEFAULT 0 NOT NULL,
	"last_answer" text,
	"last_reason" text,
	"last_checked_at" timestamp with time zone,
	"check_after_ms" bigint NOT NULL,
	"prepared_at" timestamp with time zone DEFAULT now() NOT NULL,
	"delay_ms" bigint,
	"deliver_before" timestamp with time zone,
	"ended_at" timestamp with time zone,
	"ended_by" text,
	CONSTRAINT "prepared_ended_has_no_clock" CHECK (("prepared"."next_action_at" is null) = ("prepared"."ended_at" is not null)),
	CONSTRAINT "prepared_ended_has_hand" CHECK (("prepared"."ended_at" is null) = ("prepared"."ended_by" is null)),
	CONSTRAINT "prepared_last_answer_check" CHECK ("prepared"."last_answer" in ('COMMITTED', 'ROLLED_BACK', 'UNKNOWN', 'NONE')),
	CONSTRAINT "prepared_numbers_check" CHECK ("prepared"."checks" >= 0 and "prepared"."answered" >= 0 and "prepared"."unanswered" >= 0)
);
--> statement-breakpoint
ALTER TABLE "alarm" DROP CONSTRAINT "alarm_kind_check";--> statement-breakpoint
CREATE INDEX "prepared_due_idx" ON "prepared" USING btree ("message_code","next_action_at") WHERE "prepared"."next_action_at" is not null;--> statement-breakpoint
ALTER TABLE "alarm" ADD CONSTRAINT "alarm_kind_check" CHECK ("alarm"."kind" in ('FAILED', 'NO_HANDLER', 'BLOCKED_TARGET', 'TLS', 'REJECTED', 'DEPENDENCY_FAILED', 'PREPARED_STUCK')) NOT VALID;
--> statement-breakpoint
-- by hand
ALTER TABLE "alarm" VALIDATE CONSTRAINT "alarm_kind_check";
