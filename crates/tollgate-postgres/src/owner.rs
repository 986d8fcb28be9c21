//! Owner ids as PostgreSQL's `uuid`.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tollgate_core::OwnerId;

/// An owner id on its way to the database. It never comes back.
#[derive(Debug)]
pub(crate) struct Owner(pub(crate) OwnerId);

impl ToSql for Owner {
    fn to_sql(&self, _ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_u128(self.0.to_bits());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}
