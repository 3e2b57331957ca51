Feature: Who may do what
  A backend needs a key, and a key opens only what it is for.

  Scenario: Without a key nothing is accepted
    When somebody without a key tells of a "goal" about "team:42"
    Then it is refused as unauthorized

  Scenario: A key for devices does not tell of events
    When a holder of the key for devices tells of a "goal" about "team:42"
    Then it is refused as forbidden

  Scenario: Wrong input is refused with the field, the limit and the value
    When the backend tells of an event about 17 subjects
    Then the event is refused, naming "subjects", 16 and 17

  Scenario: One wrong event in a list spoils no other
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a list with a right event about "team:42" and a wrong one
    Then the list is refused as a whole
    And Ada's phone is not pushed

  Scenario: The operator sees who sent what to how many
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Bob's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" and expects at most 10 to be told
    Then the audit log says that "backend" told of it, and to 2 devices
