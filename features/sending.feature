Feature: Sending
  What is urgent goes first, what is new takes the place of what is old, and people hold the brakes.

  Scenario: A goal does not wait behind a newsletter
    Given Ada's phone is subscribed to "goal" of "team:42"
    And a newsletter to 5000 phones is on its way
    When the backend tells of a "goal" about "team:42" with priority "high"
    Then Ada's phone is pushed before the newsletter is through

  Scenario: A newsletter does not wait for another one
    Given a newsletter to 5000 phones is on its way
    When the backend sends another newsletter to the same phones
    Then both go out side by side

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

  Scenario Outline: What is held goes on when it is let go: <scope>
    Given Ada's phone is subscribed to "goal" of "team:42"
    And the operator has paused "<scope>"
    When the backend tells of a "goal" about "team:42"
    And the job of the event waits, paused by "<scope>"
    Then nobody has been pushed so far
    When the operator resumes "<scope>"
    Then Ada's phone is pushed once

    Examples:
      | scope               |
      | everything          |
      | app:com.example.app |
      | topic:goal          |
      | provider:apns       |

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
    When the backend tells of a "goal" about "team:42" for 6 seconds from now
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

  Scenario: In shadow mode some of a hundred are pushed, always the same
    Given the operator lets 20 of a hundred phones be pushed
    And 1000 phones are subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    And the backend tells of another "goal" about "team:42"
    Then the same phones are pushed each time, 150 to 250 of them

  Scenario: A dry run is checked by Google and shown to nobody
    Given Bob's Android phone, which Google reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" as a dry run
    Then the event counts 1 device as accepted
    And Bob's Android phone was pushed 0 times and shows 0 notifications

  Scenario: A dry run is not sent where the provider checks nothing
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" as a dry run
    Then Ada's phone is not pushed
    And the event counts 1 device as suppressed for "dry_run"

  Scenario: An Android phone is pushed
    Given Bob's Android phone, which Google reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Bob's Android phone shows the goal, once

  Scenario: A correction takes the place of what an Android phone shows
    Given Bob's Android phone, which Google reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" with collapse key "match-1-score"
    And Bob's Android phone has got it
    And the backend tells of another "goal" about "team:42" with collapse key "match-1-score"
    Then Bob's Android phone was pushed 2 times and shows 1 notification

  Scenario: Google lets nobody in for a while
    Given Google gives nobody access for now
    And Bob's Android phone, which Google reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    And Google has refused access
    And Google gives access again
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

  Scenario: A correction takes the place of what a browser shows
    Given Bob's browser, which its maker reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42" with collapse key "match-1-score"
    And Bob's browser has got it
    And the backend tells of another "goal" about "team:42" with collapse key "match-1-score"
    Then Bob's browser was pushed 2 times and shows 1 notification

  Scenario: The operator watches a job
    Given a newsletter to 5000 phones is on its way
    When the operator watches it until it is done
    Then the operator has seen it come to 5000 phones, step by step

  Scenario: The operator watches a job at a terminal
    Given a newsletter to 5000 phones is on its way
    Then the operator sees it move on the screen, up to 5000 phones

  Scenario: All jobs as lines
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend tells of 3 events about "team:42"
    Then the operator can have all jobs as lines, the newest first

  Scenario: How long it would take by Google's quota
    Given Google takes 2 messages a minute
    And Bob's Android phone, which Google reaches, is subscribed to "goal" of "team:42"
    When the backend tells of a "goal" about "team:42"
    Then Bob's Android phone shows the goal, once
    When the backend asks who would be told of a "goal" about "team:42"
    Then Google's quota lets the next one through in about half a minute

  Scenario: How long it would take by what was measured
    Given Ada's phone is subscribed to "goal" of "team:42"
    When the backend asks who would be told of a "goal" about "team:42"
    Then nobody knows yet how long Apple needs for it
    When the backend tells of a "goal" about "team:42"
    And Ada's phone has got it
    Then it is known how long Apple needs for a "goal" about "team:42"
