Feature: Sending
  What is urgent goes first, what is new takes the place of what is old, and people hold the brakes.

  Scenario: A goal does not wait behind a newsletter
    Given Ada's phone is subscribed to "goal" of "team:42"
    And a newsletter to 5000 phones is on its way
    When the backend tells of a "goal" about "team:42" with priority "high"
    Then Ada's phone is pushed before the newsletter is through

  Scenario: A running job is cancelled
    Given a newsletter to 5000 phones is on its way
    When the operator cancels it
    Then the job of the newsletter ends as cancelled
    And no further phone is pushed

  Scenario: A cancelled job stays cancelled over a crash
    Given a newsletter to 5000 phones is on its way
    When the operator cancels it
    And the server is killed and started again
    Then the job of the newsletter ends as cancelled

  Scenario: Everything is held and goes on
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the operator has paused "everything"
    When the backend tells of a "goal" about "team:42"
    And the job of the event waits, paused by "everything"
    Then nobody has been pushed so far
    When the operator resumes "everything"
    Then Ada's phone is pushed once

  Scenario: A topic that is held does not hold others
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Ada's phone is subscribed to "score" of "team:42"
    And the operator has paused "topic:score"
    When the backend tells of a "score" about "team:42"
    And the backend tells of a "goal" about "team:42"
    And Ada's phone has got it
    Then the job of the first event waits, paused by "topic:score"

  Scenario: A brake stays on over a crash
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the operator has paused "provider:apns"
    When the server is killed and started again
    And the backend tells of a "goal" about "team:42"
    And the job of the event waits, paused by "provider:apns"
    And the operator resumes "provider:apns"
    Then Ada's phone is pushed once

  Scenario: The newer score takes over
    Given Ada's phone is subscribed to "goal" of "team:42"
    And Bob's phone is subscribed to "goal" of "team:43"
    And the operator has paused "everything"
    When the backend tells of the event "score-1" about "team:42" and "team:43" with collapse key "match-1"
    And the backend tells of the event "score-2" about "team:42" with collapse key "match-1"
    And the operator resumes "everything"
    Then Ada's phone is pushed once, with the event "score-2"
    And Bob's phone is pushed once, with the event "score-1"
    And the event "score-1" counts 1 device as superseded

  Scenario: An event for later
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" for 2 seconds from now
    Then the event is scheduled
    And Ada's phone is pushed once, and not before its time

  Scenario: An event for later survives a crash
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" for 2 seconds from now
    And the server is killed and started again
    Then Ada's phone is pushed once, and not before its time

  Scenario: An event for later is taken back
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" for 3600 seconds from now
    And the backend takes the event back
    Then the event is not known any more

  Scenario: In shadow mode only the chosen are pushed
    Given the operator lets only Ada's phone be pushed
    And Ada's phone is subscribed to "goal" of "team:42"
    And Bob's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Ada's phone is pushed once
    And Bob's phone is not pushed
    And the event counts 1 device as suppressed for "shadow"

  Scenario: An Android phone is pushed
    Given Bob's Android phone, which Google reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Bob's Android phone shows the goal, once

  Scenario: A browser is pushed
    Given Bob's browser, which its maker reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Bob's browser can read the goal, once

  Scenario: The report says who got what in which language
    Given Ada's phone in the language "pl" is subscribed to "goal" of "team:42"
    And Bob's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then the event counts 1 device as accepted in "pl" and 1 in the language of the source
