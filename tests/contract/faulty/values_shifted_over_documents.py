from dataclasses import replace

import zoo


@zoo.register("values_shifted_over_documents")
class ValuesShiftedOverDocuments(zoo.Encoding):
    """`values` adds the value of the token before, which may be the last of another document."""

    family = "content"
    relative = True
    reads_positions = False

    def values(self, v, context):
        return v + replace(context, documents=None).previous(v)
