//! Which publications the hub lacks, and what brings them; see [`crate::histories`].

use tidings_types::ChannelName;

use crate::cache::Wanted;
use crate::histories::LoadFuture;
use crate::{Hub, histories};

impl Hub {
    /// The bytes of the publications that durable channels hold and the store has, too.
    pub fn held_history_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.budget().used())
    }

    /// How often a durable channel has let go of its publications because all together had too many bytes.
    pub fn dropped_history_count(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.budget().dropped())
    }

    /// Whether publications are asked for that the channel does not hold, and the store may have. Whoever asks holds back what
    /// the channel has from being let go of for a while.
    pub fn lacks(&self, name: &ChannelName, wanted: Wanted<'_>) -> bool {
        self.cache.is_some() && self.existing(name).is_some_and(|channel| channel.lacks(wanted))
    }

    /// Whoever asks for publications waits for this first; `None`: there is nothing to wait for. If they cannot be read, they
    /// are lacking afterwards, too: then whoever resumes gets a gap.
    ///
    /// # Cancel safety
    /// Dropped: they are read and put in nevertheless.
    pub fn load(&self, name: &ChannelName, wanted: Wanted<'_>) -> Option<LoadFuture> {
        let (histories, cache) = (self.histories.as_ref()?, self.cache.as_ref()?);
        let channel = self.existing(name).filter(|channel| channel.lacks(wanted))?;
        Some(histories::load(&**histories, channel, cache))
    }
}
