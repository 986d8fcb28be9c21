
-- Whoever is to use these without having made them needs:
--   grant usage on schema tollgate to SOMEBODY;
--   grant select, insert, update, delete on all tables in schema tollgate to SOMEBODY;
--   grant usage, select, update on all sequences in schema tollgate to SOMEBODY;
