//! Who takes part in a contest, and how their traffic is counted.

use std::sync::Arc;

use crate::contender::Contender;
use crate::meter::Meter;

/// A contender, and the same one over a wire on which somebody counts.
pub struct Entry {
    pub(crate) contender: Arc<dyn Contender>,
    pub(crate) counted: Option<(Arc<dyn Contender>, Arc<dyn Meter>)>,
}

impl Entry {
    /// A contender whose traffic nobody counts.
    pub fn new(contender: Arc<dyn Contender>) -> Self {
        Self { contender, counted: None }
    }

    /// Who it is.
    pub fn name(&self) -> &str {
        self.contender.name()
    }

    /// Counts what each lock costs on the wire in a round of its own, by `twin`: the same contender on a way
    /// to the engine that `meter` watches. Counting takes time, so the rounds that are timed go without.
    pub fn counted(self, twin: Arc<dyn Contender>, meter: Arc<dyn Meter>) -> Self {
        Self { counted: Some((twin, meter)), ..self }
    }
}

impl From<Arc<dyn Contender>> for Entry {
    fn from(contender: Arc<dyn Contender>) -> Self {
        Self::new(contender)
    }
}
