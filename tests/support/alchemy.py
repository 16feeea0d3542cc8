"""The part of SQLAlchemy's own suite that tables have to pass (`test_tables_alchemy.py`)."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

__all__ = ["CLOSED", "OPEN", "Requirements"]

OPEN: Final = (
    # Statements.
    "views create_or_replace_view create_table_as savepoints autocommit isolation_level "
    "skip_autocommit_rollback table_ddl_if_exists index_ddl_if_exists "
    # Queries, and rows that are written by them.
    "ctes ctes_with_values ctes_with_update_delete update_from delete_from intersect except_ "
    "window_functions tuple_in nullsordering table_value_constructor boolean_col_expressions "
    "aggregate_order_by fetch_first fetch_no_order_by fetch_offset_with_options "
    "mod_operator_as_percent_sign order_by_label_with_expression regexp_match regexp_replace "
    # Reflection, and values.
    "foreign_key_constraint_option_reflection_ondelete inline_check_constraint_reflection "
    "check_constraint_reflection indexes_check_column_order "
    "unique_constraints_reflect_as_index unique_index_reflect_as_unique_constraints "
    "expression_server_defaults datetime_literals timestamp_microseconds "
    "date_historic datetime_historic precision_numerics_enotation_small "
    "precision_numerics_retains_significant_digits float_or_double_precision_behaves_generically"
).split()

CLOSED: Final = (
    # There are no schemas, temporary tables and views, sequences and comments.
    "schemas temp_table_reflection temporary_tables temporary_views sequences "
    "comment_reflection implements_get_lastrowid "
    # Types that columns do not have.
    "binary_literals time time_microseconds precision_numerics_enotation_large "
    "precision_numerics_many_significant_digits unicode_data_no_special_types "
    # Paths in JSON are written differently; indexes are ascending, and have no expressions.
    "json_type reflect_indexes_with_ascdesc reflect_indexes_with_expressions "
    "indexes_with_expressions "
    # Names of primary keys, and the order of unnamed constraints, are not kept.
    "primary_key_constraint_reflection foreign_key_constraint_name_reflection "
    # A name may not have quotes, spaces and the like.
    "unicode_ddl "
    # A part of WITH that writes; what SQLAlchemy's compiler would have to know.
    "ctes_on_dml update_from_using_alias"
).split()


class Requirements(SuiteRequirements):
    """Opens what not every database has, and closes what tables do not have."""


_EXCLUSIONS: Any = exclusions
for _name in OPEN:
    setattr(Requirements, _name, property(lambda _: _EXCLUSIONS.open()))
for _name in CLOSED:
    setattr(Requirements, _name, property(lambda _: _EXCLUSIONS.closed()))
