//! When secrets were last used, over all replicas.

use tokio_postgres::types::Type;

use super::Backend;
use super::manage::read;
use super::transaction::Step;
use crate::id::SourceName;
use crate::store::StoreError;
use crate::store::secrets::{FORGET_SECRETS_AFTER, SecretMark, SecretNote, SecretRecord};
use crate::time::Timestamp;

impl Backend {
    pub(in crate::store) async fn note_secrets(&self, notes: Vec<SecretNote>) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let sources: Vec<&str> = notes.iter().map(|note| note.source.as_str()).collect();
        let marks: Vec<i64> = notes.iter().map(|note| note.mark.get()).collect();
        let used: Vec<Option<i64>> = notes.iter().map(|note| note.used.map(Timestamp::as_millis)).collect();
        let others: Vec<i64> = notes
            .iter()
            .map(|note| i64::try_from(note.others).unwrap_or(i64::MAX))
            .collect();
        let now = shared.database.now();
        let (millis, long_ago) = (now.as_millis(), now.before(FORGET_SECRETS_AFTER).as_millis());
        let step = Step::new(
            include_str!("note_secrets.sql"),
            [
                (&sources as _, Type::TEXT_ARRAY),
                (&marks as _, Type::INT8_ARRAY),
                (&used as _, Type::INT8_ARRAY),
                (&others as _, Type::INT8_ARRAY),
                (&millis as _, Type::INT8),
                (&long_ago as _, Type::INT8),
            ],
        );
        shared.database.write_quietly(&[step]).await?;
        Ok(())
    }

    pub(in crate::store) async fn secrets(&self) -> Result<Vec<SecretRecord>, StoreError> {
        let shared = &self.shared;
        shared.is_open()?;
        let rows = shared.database.read(include_str!("secrets.sql"), &[]).await?;
        let records = rows.iter().map(|row| {
            let last_used: Option<i64> = read(row, "last_used")?;
            Ok(SecretRecord {
                source: SourceName::new(read::<String>(row, "source")?),
                mark: SecretMark::new(read(row, "mark")?),
                since: Timestamp::from_millis(read(row, "since")?),
                last_used: last_used.map(Timestamp::from_millis),
                others: u64::try_from(read::<i64>(row, "others")?).unwrap_or(0),
            })
        });
        records.collect()
    }
}
