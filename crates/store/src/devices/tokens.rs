//! Which device has a push token (a token has one device), and the removal of tokens that a provider reports as gone.

use tidings_types::{Device, DeviceNumber, DeviceToken};

use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::GoneToken;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{EngineError, Table};
use crate::error::{ReadError, WriteError};
use crate::hash::Hash16;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

impl Store {
    /// Removes tokens that the provider reports as gone. A device keeps its token if it has another one by now, or registered
    /// it again after `gone_at`. Returns how many were removed.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: all are removed or none. Repeating the request changes nothing more.
    pub async fn tokens_gone(&self, tokens: Vec<GoneToken>) -> Result<usize, WriteError> {
        let bytes = weight::TOKEN * tokens.len();
        self.write(Class::Devices, bytes, move |draft| draft.tokens_gone(tokens)).await
    }

    /// The device that has this token.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn device_by_token(&self, token: &DeviceToken) -> Result<Option<Device>, ReadError> {
        let token_key = rows::token_key(token);
        self.with_engine(|engine| {
            let Some(number) = engine.read(Table::Token, &token_key, decode_holder)? else { return Ok(None) };
            let row = engine.read(Table::Device, &rows::number_key(number), rows::decode_device)?;
            // Between the two reads it may have got another token.
            let has_it = |device: &Device| device.token.as_ref().is_some_and(|had| rows::token_key(had) == token_key);
            Ok(row.map(|row| row.device).filter(has_it))
        })
    }
}

fn decode_holder(key: &[u8], row: &[u8]) -> Result<DeviceNumber, EngineError> {
    rows::decode_number(Table::Token, key, row)
}

impl Draft<'_> {
    /// Gives the token `new` to the device `number`. Another device that has it loses it. The device loses the token `old`.
    pub(crate) fn move_token(
        &mut self,
        number: DeviceNumber,
        old: Option<&DeviceToken>,
        new: Option<&DeviceToken>,
    ) -> Result<(), EngineError> {
        if let Some(old) = old.filter(|old| Some(*old) != new) {
            self.rows.delete(Table::Token, rows::token_key(old));
        }
        let Some(new) = new else { return Ok(()) };
        let key = rows::token_key(new);
        for holder in self.holders(&key)?.into_iter().filter(|holder| *holder != number) {
            // After damage, the row may name a device that has another token; that device keeps it.
            let held = |row: &DeviceRow| row.device.token.as_ref().is_some_and(|token| rows::token_key(token) == key);
            if let Some(mut row) = self.row(holder)?.filter(held) {
                row.device.token = None;
                self.set_proven(holder, false);
                self.put_row_of_same_user(holder, row);
            }
        }
        self.rows.put(Table::Token, key, rows::number_key(number));
        Ok(())
    }

    /// The devices that have the token of this key. If its row is damaged, all devices in memory are searched, because a
    /// token of two devices would get every push twice.
    pub(crate) fn holders(&self, key: &Hash16) -> Result<Vec<DeviceNumber>, EngineError> {
        match damage::tolerate(
            self.read(Table::Token, key, decode_holder),
            "The device of a token is searched in memory",
        )? {
            None => {
                let table = self.shared.table.read();
                Ok(table.find_all(|found| found.token.is_some_and(|token| rows::token_key(&token.to_token()) == *key)))
            }
            Some(holder) => Ok(holder.into_iter().collect()),
        }
    }

    pub(crate) fn tokens_gone(&mut self, tokens: Vec<GoneToken>) -> Result<usize, EngineError> {
        let mut taken = 0;
        for GoneToken { number, token, gone_at } in tokens {
            let Some(mut row) = self.row(number)? else {
                // Its row is damaged, so memory says whether it has this token.
                let has_it = |(_, held): (_, Option<DeviceToken>)| held.as_ref() == Some(&token);
                if self.is_left(number) && self.address_in_memory(number).is_some_and(has_it) {
                    self.forget(number)?;
                    taken += 1;
                }
                continue;
            };
            let same = row.device.token.as_ref().is_some_and(|held| rows::token_key(held) == rows::token_key(&token));
            let newer = gone_at.is_some_and(|gone_at| row.device.token_at > gone_at);
            if same && !newer {
                row.device.token = None;
                self.rows.delete(Table::Token, rows::token_key(&token));
                self.set_proven(number, false);
                self.put_row_of_same_user(number, row);
                taken += 1;
            }
        }
        Ok(taken)
    }
}
