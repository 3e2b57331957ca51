Feature: Whom
  An event reaches those who asked for it, or those it names; and only the part of them that it is for.

  Scenario: A user needs no subscription to be told
    Given Ada's phone belongs to the user "ada"
    When the backend tells of a "goal" about "user:ada"
    Then Ada's phone is pushed once

  Scenario: All phones of a user are told
    Given Ada's phone belongs to the user "ada"
    And Ada's tablet belongs to the user "ada"
    When the backend tells of a "goal" about "match:1" to the user "ada"
    Then Ada's phone is pushed once
    And Ada's tablet is pushed once

  Scenario: An event to some by name is not for those who subscribed
    Given Ada's phone belongs to the user "ada"
    And Bob's phone is subscribed to "goal" of "match:1"
    When the backend tells of a "goal" about "match:1" to the user "ada"
    Then Ada's phone is pushed once
    And Bob's phone is not pushed

  Scenario: One device by name
    Given Ada's phone is known
    When the backend tells of a "goal" about "match:1" to Ada's phone
    Then Ada's phone is pushed once

  Scenario: A phone that changed hands
    Given Ada's phone belongs to the user "ada"
    And Ada's phone belongs to the user "bob" now
    When the backend tells of a "goal" about "user:ada"
    Then Ada's phone is not pushed
    When the backend tells of a "goal" about "user:bob"
    Then Ada's phone is pushed once

  Scenario: A phone that shows no notifications is not pushed
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone does not let its app show notifications
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is not pushed
    And the event counts 1 device as suppressed for "no_permission"

  Scenario: Only in one country
    Given Ada's phone in "SE" is subscribed to "goal" of "team:42"
    And Bob's phone in "PL" is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" only in "SE"
    Then Ada's phone is pushed once
    And Bob's phone is not pushed

  Scenario: Counting without sending
    Given Ada's phone in "SE" is subscribed to "goal" of "team:42"
    And Bob's phone in "PL" is subscribed to "goal" of "team:42"
    When the backend asks who would be told of a "goal" about "team:42"
    Then it is 2 devices, 1 in "SE" and 1 in "PL"
    And Ada's phone is not pushed

  Scenario: An event for more people than expected is not sent
    Given 1000 phones are subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" and expects at most 10 to be told
    Then the event is refused, as its audience is not the expected one

  Scenario: A key for a few devices does not reach many
    Given 1000 phones are subscribed to "goal" of "team:42"
    When a backend whose key reaches 10 devices at most tells of a "goal" about "team:42"
    Then the event is refused, as its audience is too large
