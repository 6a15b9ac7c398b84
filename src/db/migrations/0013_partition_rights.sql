-- Any role may call a new function: with these two, one that may only enqueue could lock the tables, or fill them with partitions.
-- They run with their owner's rights for processes whose role does not own the tables. Such a role keeps them: it may insert attempts.
DO $$
DECLARE
	f text;
	grantee text;
BEGIN
	FOREACH f IN ARRAY ARRAY['make_partition(text, uuid)', 'drop_partition(text, text)'] LOOP
		EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
		FOR grantee IN
			SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE format('%I', pg_get_userbyid(a.grantee)) END
			FROM pg_class c CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
			WHERE c.oid = 'attempt'::regclass AND a.privilege_type = 'INSERT'
			UNION
			SELECT format('%I', pg_get_userbyid(m.member)) FROM pg_auth_members m WHERE m.roleid = to_regrole('pg_write_all_data')
		LOOP
			EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', f, grantee);
		END LOOP;
	END LOOP;
END
$$;
